"""An MPI program without a compiler: rank, size, sum of all ranks and node, by way of OpenMPI's C library."""

import ctypes
import os

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, integer, add = (
    ctypes.byref(ctypes.c_char.in_dll(mpi, f"ompi_mpi_{name}")) for name in ("comm_world", "int", "op_sum")
)
mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, integer, add, world)
print(f"{rank.value} {size.value} {total.value} {os.environ.get('SLURMD_NODENAME')}\n", end="", flush=True)
mpi.MPI_Finalize()
