# Prepares a bare machine with an NVIDIA GPU, a driver and Python for tools/gpu_bench.py.
# Source it in the root of the checkout:    . tools/gpu_setup.sh
#
# PyOpenCL and its loader come from wheels in .whl/ (ignored by git), so that the machine needs no
# network: pyopencl pytools siphash24 platformdirs typing_extensions mako markupsafe filelock, each
# for the machine's Python, fetched elsewhere with `pip download --no-deps --only-binary=:all:
# --python-version 3.12 --platform manylinux_2_28_x86_64 … -d .whl NAME`.
# CLBlast, for gpu_bench --clblast, can come along too: libclblast.so.1 and libOpenCL.so.1 out of
# Debian's libclblast1 and ocl-icd-libopencl1 (`dpkg -x`), in a folder that LD_LIBRARY_PATH names.
site=$(mktemp -d)
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
    --target "$site" .whl/*.whl || return 1
export PYTHONPATH=$PWD:$site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export CLMATMUL_CACHE_DIR=${CLMATMUL_CACHE_DIR:-$site/cache} CLMATMUL_DB=${CLMATMUL_DB:-$site/db}
if [ ! -s /etc/OpenCL/vendors/nvidia.icd ]; then
    driver=$(find / -name 'libnvidia-opencl.so*' -not -path '/proc/*' 2>/dev/null | head -1)
    [ -n "$driver" ] || { echo "there is no libnvidia-opencl.so on this machine" >&2; return 1; }
    mkdir -p /etc/OpenCL/vendors && echo "$driver" > /etc/OpenCL/vendors/nvidia.icd
fi
