# A toolchain for 64-bit ARM: Debian's cross-compiler, and libraries under the folder TRIAGE_ARM64_ROOT (./dev --torch arm64 makes
# it, and runs what is built in QEMU).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TRIAGE_ARM64_ROOT)

set(CMAKE_SYSROOT ${TRIAGE_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind IN ITEMS LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(libraries ${TRIAGE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TRIAGE_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:${TRIAGE_ARM64_ROOT}/usr/share/pkgconfig)
