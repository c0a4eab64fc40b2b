# A toolchain for 64-bit ARM: Debian's cross-compiler, the libraries under the folder TRIAGE_ARM64_ROOT, and QEMU, which runs
# what is built. `./dev test --torch arm64` makes that folder and uses this file.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TRIAGE_ARM64_ROOT)
set(CMAKE_SYSROOT ${TRIAGE_ARM64_ROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${TRIAGE_ARM64_ROOT})
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TRIAGE_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${TRIAGE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${TRIAGE_ARM64_ROOT}/usr/share/pkgconfig)
# The BLAS lies where alternatives of Debian would name it.
string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT " -Wl,-rpath-link,${TRIAGE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/blas:${TRIAGE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/lapack")
