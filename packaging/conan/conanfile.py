"""Conan 2 recipe of triage. It builds against LibTorch and the libraries of the system: Conan's own builds of Lua are C, and
policies need the one that is C++.

    conan create packaging/conan                                     # Debian's LibTorch
    conan create packaging/conan -o "triage/*:torch=/path/to/torch"  # the folder of a torch package, or an unpacked LibTorch
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt

PARTS = ["CMakeLists.txt", "LICENSE", "README.md", "bindings/*", "cmake/*", "docs/*", "examples/*", "runtime/*", "scripts/*"]


class TriageConan(ConanFile):
    name = "triage"
    description = "Per-sample error records and scripted recovery for LibTorch"
    license = "MIT"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"torch": [None, "ANY"]}
    default_options = {"torch": None}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        text = load(self, os.path.join(self._root, "CMakeLists.txt"))
        self.version = re.search(r"project\(triage VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        for part in PARTS:
            copy(self, part, src=self._root, dst=self.export_sources_folder, excludes=["*/__pycache__/*"])

    def layout(self):
        self.folders.build = "build"
        self.folders.generators = "conan"

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux" or self.settings.get_safe("compiler.libcxx") not in (None, "libstdc++11"):
            raise ConanInvalidConfiguration("triage needs Linux and libstdc++ (compiler.libcxx=libstdc++11), as LibTorch's packages have them")

    def system_requirements(self):
        packages = ["pkg-config", "liblua5.4-dev", "libfmt-dev", "libspdlog-dev", "libcli11-dev", "nlohmann-json3-dev", "libssl-dev", "libedit-dev"]
        Apt(self).check(packages + ([] if self.options.torch else ["libtorch-dev"]))

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCH", "EXAMPLES", "PYTHON"):
            toolchain.cache_variables[f"TRIAGE_BUILD_{part}"] = False
        if self.options.torch:
            torch = str(self.options.torch)
            toolchain.cache_variables["CMAKE_PREFIX_PATH"] = f"{torch}/share/cmake;{torch}"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package's own files for find_package, which know which LibTorch it was built with.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "triage")]
        self.cpp_info.libs = ["triage"]
