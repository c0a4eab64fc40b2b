import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain


class TestTriage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        self.folders.build = "build"
        self.folders.generators = "build/conan"

    def generate(self):
        toolchain = CMakeToolchain(self)
        torch = self.dependencies["triage"].options.torch
        if torch:
            toolchain.cache_variables["CMAKE_PREFIX_PATH"] = f"{torch}/share/cmake;{torch}"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.build_folder, "consumer"))
