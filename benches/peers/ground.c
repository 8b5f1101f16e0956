/* A window with the operations on it that are measured, and the proof that they did what they should. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Windows have whole ones, as the crate's; MPICH 4.0 mixes up allocated windows of 8 bytes. */
#define LINE 128

struct ground ground;

static uint64_t stamp(uint64_t seed, uint64_t index)
{
    /* An odd factor, so that neighbours differ in every byte. */
    return (((seed ^ index) + 1) * 0x9E3779B97F4A7C15ULL) | 1;
}

static bool moves_bytes(enum operation operation)
{
    return operation == PUT || operation == GET;
}

static bool fetches(enum operation operation)
{
    return operation == GET_ACCUMULATE || operation == FETCH_AND_OP || operation == COMPARE_AND_SWAP;
}

/* Who accesses whom: rank i of the lower half the same rank of the upper half, and the other way where both ways are
 * measured. */
static void take_part(const struct options *options)
{
    int half = ranks / 2;
    bool is_lower = own_rank < half, is_upper = own_rank >= half && own_rank < 2 * half;
    ground.partner = is_lower ? own_rank + half : is_upper ? own_rank - half : MPI_PROC_NULL;
    ground.is_both = options->bidirectional && ground.partner != MPI_PROC_NULL;
    ground.measures = is_lower || ground.is_both;
    ground.is_target = is_upper && !ground.is_both;
    bool takes_turns = turns(options) > 1;
    ground.accesses = ground.measures || (ground.is_target && takes_turns);
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    ground.group = MPI_GROUP_EMPTY;
    if (ground.partner != MPI_PROC_NULL)
        MPI_Group_incl(world, 1, &ground.partner, &ground.group);
    MPI_Group_free(&world);
}

void ground_open(const struct options *options, size_t size_max, size_t bytes_max)
{
    take_part(options);
    size_t bytes = (bytes_max + LINE - 1) / LINE * LINE;
    ground.bytes = ground.partner == MPI_PROC_NULL ? 0 : bytes;
    ground.kind = options->window;
    ground.source = allocate(size_max + WORD);
    ground.result = allocate(bytes + WORD);
    ground.memory = NULL;
    ground.disp = 0;
    ground.batches_begun = 0;
    void *base = NULL;
    MPI_Aint length = (MPI_Aint)ground.bytes;
    if (ground.kind == CREATE || ground.kind == DYNAMIC)
        base = ground.memory = allocate(bytes + WORD);
    switch (ground.kind) {
    case CREATE:
        MPI_Win_create(base, length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &ground.window);
        break;
    case ALLOCATE:
        MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &ground.window);
        break;
    case SHARED:
        MPI_Win_allocate_shared(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &ground.window);
        break;
    default: {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &ground.window);
        if (ground.bytes)
            MPI_Win_attach(ground.window, base, length);
        MPI_Aint own, *all = allocate((size_t)ranks * sizeof *all);
        MPI_Get_address(base, &own);
        MPI_Allgather(&own, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
        if (ground.partner != MPI_PROC_NULL)
            ground.disp = all[ground.partner];
        free(all);
    }
    }
}

void ground_close(void)
{
    if (ground.kind == DYNAMIC) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (ground.bytes)
            MPI_Win_detach(ground.window, ground.memory);
    }
    MPI_Win_free(&ground.window);
    if (ground.group != MPI_GROUP_EMPTY)
        MPI_Group_free(&ground.group);
    free(ground.memory);
    free(ground.source);
    free(ground.result);
}

static void issue_one(const struct row *row, size_t place)
{
    int count = (int)row->size, words = (int)(row->size / WORD), to = ground.partner;
    MPI_Aint disp = ground.disp + (MPI_Aint)(place * row->size);
    char *result = (char *)ground.result + place * row->size;
    static uint64_t old, new;
    switch (row->operation) {
    case PUT:
        MPI_Put(ground.source, count, MPI_BYTE, to, disp, count, MPI_BYTE, ground.window);
        break;
    case GET:
        MPI_Get(result, count, MPI_BYTE, to, disp, count, MPI_BYTE, ground.window);
        break;
    case ACCUMULATE:
        MPI_Accumulate(ground.source, words, MPI_UINT64_T, to, disp, words, MPI_UINT64_T, MPI_SUM, ground.window);
        break;
    case GET_ACCUMULATE:
        MPI_Get_accumulate(ground.source, words, MPI_UINT64_T, result, words, MPI_UINT64_T, to, disp, words,
                           MPI_UINT64_T, MPI_SUM, ground.window);
        break;
    case FETCH_AND_OP:
        MPI_Fetch_and_op(ground.source, result, MPI_UINT64_T, to, disp, MPI_SUM, ground.window);
        break;
    default:
        /* The same for all of an epoch, and read before the epoch ends. */
        old = ground.epochs - 1, new = ground.epochs;
        MPI_Compare_and_swap(&new, &old, result, MPI_UINT64_T, to, disp, ground.window);
    }
}

void issue(const struct row *row)
{
    ground.epochs++;
    for (size_t place = 0; place < row->outstanding; place++)
        issue_one(row, place);
}

/* Data that no batch had before, at a target in a known state. */
void ground_begin(const struct row *row)
{
    size_t span = row->size * row->outstanding, words = (row->size + WORD - 1) / WORD;
    uint64_t seed = (uint64_t)own_rank << 48 ^ ++ground.batches_begun << 24;
    ground.epochs = 0;
    for (size_t index = 0; index < words; index++)
        ground.source[index] = moves_bytes(row->operation) ? stamp(seed, index) : 1;
    memset(ground.result, 0, span);
    MPI_Win_lock(MPI_LOCK_SHARED, ground.partner, 0, ground.window);
    int size = (int)row->size;
    for (size_t place = 0; row->operation == GET && place < row->outstanding; place++)
        MPI_Put(ground.source, size, MPI_BYTE, ground.partner, ground.disp + (MPI_Aint)(place * row->size), size,
                MPI_BYTE, ground.window);
    if (!moves_bytes(row->operation))
        MPI_Put(ground.result, (int)span, MPI_BYTE, ground.partner, ground.disp, (int)span, MPI_BYTE, ground.window);
    MPI_Win_unlock(ground.partner, ground.window);
}

static void compare(const struct row *row, uint64_t count, const char *what)
{
    const char *results = (const char *)ground.result;
    for (size_t place = 0; place < row->outstanding; place++) {
        const char *result = results + place * row->size;
        bool is_right = !moves_bytes(row->operation) || memcmp(result, ground.source, row->size) == 0;
        for (size_t at = 0; !moves_bytes(row->operation) && at < row->size; at += WORD)
            is_right = is_right && memcmp(result + at, &count, WORD) == 0;
        if (!is_right)
            fail("%s of %zu bytes with rank %d %s", operation_names[row->operation], row->size, ground.partner, what);
    }
}

void ground_check(const struct row *row)
{
    if (!ground.epochs || !row->outstanding)
        return;
    if (row->operation == GET || fetches(row->operation))
        compare(row, ground.epochs - 1, "brought something else than the target held");
    int span = (int)(row->size * row->outstanding);
    MPI_Win_lock(MPI_LOCK_SHARED, ground.partner, 0, ground.window);
    MPI_Get(ground.result, span, MPI_BYTE, ground.partner, ground.disp, span, MPI_BYTE, ground.window);
    MPI_Win_unlock(ground.partner, ground.window);
    compare(row, ground.epochs, "left something else at the target than was meant");
}
