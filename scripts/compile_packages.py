"""Compile the packages of this environment, one process for each core; pip would use one core for all of them."""

import compileall
import sysconfig

if __name__ == "__main__":
    # Some packages have files for other versions of Python, which cannot be compiled, and which nobody imports.
    compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=0)
