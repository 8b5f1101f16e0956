/* A program of others for ci/launch-tests.sh: an MPI program whose ranks find each other by PMI-1. With an
 * argument it aborts. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, received = -1, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &received, 1, MPI_INT, (rank + size - 1) % size, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Reduce(&received, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ring of %d: sum %d\n", size, sum);
    if (argc > 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Finalize();
    return 0;
}
