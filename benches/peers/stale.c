/* Whether what flush has completed is what others read.
 *
 * Rank 0 puts to rank 1 and flushes, then tells the last rank, by a message, and that one reads: with get, or, where it
 * is the target itself, by a load. Whatever it reads must be what was put. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 78
#define TARGET 1
#define EPOCHS 1000

static uint64_t count_stale(const struct options *options, size_t size, uint64_t epochs)
{
    int reader = ranks - 1, length = (int)size;
    unsigned char *buffer = allocate(size), *own = allocate(size), *base = own, *expected = allocate(size);
    uint64_t stale = 0;
    MPI_Win window;
    if (options->window == CREATE)
        MPI_Win_create(own, (MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    else
        MPI_Win_allocate((MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    memset(base, 0, size);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (uint64_t epoch = 1; epoch <= epochs; epoch++) {
        int value = (int)(epoch % 251 + 1);
        if (own_rank == 0) {
            memset(buffer, value, size);
            MPI_Put(buffer, length, MPI_BYTE, TARGET, 0, length, MPI_BYTE, window);
            MPI_Win_flush(TARGET, window);
            MPI_Send(NULL, 0, MPI_BYTE, reader, STEP, MPI_COMM_WORLD);
            MPI_Recv(NULL, 0, MPI_BYTE, reader, STEP, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (own_rank == reader) {
            memset(expected, value, size);
            MPI_Recv(NULL, 0, MPI_BYTE, 0, STEP, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (reader == TARGET) {
                MPI_Win_sync(window);
                stale += memcmp(base, expected, size) != 0;
            } else {
                MPI_Get(buffer, length, MPI_BYTE, TARGET, 0, length, MPI_BYTE, window);
                MPI_Win_flush(TARGET, window);
                stale += memcmp(buffer, expected, size) != 0;
            }
            MPI_Send(NULL, 0, MPI_BYTE, 0, STEP, MPI_COMM_WORLD);
        }
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
    free(buffer);
    free(own);
    free(expected);
    MPI_Bcast(&stale, 1, MPI_UINT64_T, reader, MPI_COMM_WORLD);
    return stale;
}

void stale(const struct options *options)
{
    uint64_t epochs = options->iterations ? options->iterations : EPOCHS;
    for (size_t size = options->size_min; size <= options->size_max; size *= 2) {
        uint64_t found = count_stale(options, size, epochs);
        struct list share = {0};
        list_add(&share, 1.0 - (double)found / (double)epochs);
        char key[128], details[64];
        snprintf(key, sizeof key,
                 "\"benchmark\":\"stale\",\"operation\":\"put\",\"sync\":\"flush\",\"reader\":\"%s\",\"size\":%zu",
                 ranks == 2 ? "target" : "third rank", size);
        snprintf(details, sizeof details, ",\"epochs\":%llu,\"stale\":%llu", (unsigned long long)epochs,
                 (unsigned long long)found);
        if (own_rank == LEADER)
            print_row(key, "share", &share, details);
        list_free(&share);
    }
}
