/* What `rma-bench windows` and `locks` measure, over an MPI library. */
#include "peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096
/* Exclusive epochs of each origin that prove that they exclude. */
#define TURNS 20

enum step { STEP_CREATE, FIRST_PUT, NEXT_PUT, FIRST_TOUCH, NEXT_TOUCH, FREE, STEPS };

static const char *const step_names[] = {"create", "first put", "next put", "first touch", "next touch", "free"};
static const char *const lock_names[] = {"shared", "exclusive"};

static double microseconds(uint64_t begun)
{
    return (double)(now() - begun) / 1000.0;
}

/* A lock epoch with a put of a word, which is then proved to be there. */
static double put(MPI_Win window, int to, MPI_Aint disp, uint64_t value)
{
    uint64_t held = 0, begun = now();
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, window);
    MPI_Put(&value, 1, MPI_UINT64_T, to, disp, 1, MPI_UINT64_T, window);
    MPI_Win_unlock(to, window);
    double time = microseconds(begun);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
    MPI_Get(&held, 1, MPI_UINT64_T, to, disp, 1, MPI_UINT64_T, window);
    MPI_Win_unlock(to, window);
    if (held != value)
        fail("a put to a new window did not arrive");
    return time;
}

static double touch(volatile char *base, size_t size)
{
    uint64_t begun = now();
    for (size_t offset = 0; offset < size; offset += PAGE)
        base[offset] = 1;
    return microseconds(begun);
}

/* Microseconds of each step at this rank; not a number where it does not take part. */
static void life(enum window_kind kind, size_t size, double times[STEPS])
{
    int partner = ranks / 2;
    bool has_memory = own_rank == 0 || own_rank == partner;
    MPI_Aint length = has_memory ? (MPI_Aint)size : 0, base_of_partner = 0;
    /* Not touched before, as the crate's. */
    void *memory = kind == CREATE || kind == DYNAMIC ? calloc(1, has_memory ? size : 1) : NULL, *base = memory;
    MPI_Win window;
    for (int step = 0; step < STEPS; step++)
        times[step] = NAN;
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t begun = now();
    if (kind == CREATE)
        MPI_Win_create(memory, length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    else if (kind == ALLOCATE)
        MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    else if (kind == SHARED)
        MPI_Win_allocate_shared(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    else
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (kind == DYNAMIC && has_memory)
        MPI_Win_attach(window, memory, length);
    times[STEP_CREATE] = microseconds(begun);
    if (kind == DYNAMIC) {
        if (has_memory)
            MPI_Get_address(memory, &base_of_partner);
        MPI_Bcast(&base_of_partner, 1, MPI_AINT, partner, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int step = FIRST_PUT; own_rank == 0 && step <= NEXT_PUT; step++)
        times[step] = put(window, partner, base_of_partner, 0x5EED000 + (uint64_t)step);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int step = FIRST_TOUCH; own_rank == 0 && kind != DYNAMIC && step <= NEXT_TOUCH; step++)
        times[step] = touch(base, size);
    MPI_Barrier(MPI_COMM_WORLD);
    begun = now();
    if (kind == DYNAMIC && has_memory)
        MPI_Win_detach(window, memory);
    MPI_Win_free(&window);
    times[FREE] = microseconds(begun);
    free(memory);
}

void windows(const struct options *options)
{
    for (size_t size = options->size_min; size <= options->size_max; size *= 2) {
        struct list times[STEPS] = {0};
        /* The first round warms up. */
        for (int round = 0; round <= options->rounds; round++) {
            double own[STEPS];
            life(options->window, size, own);
            for (int step = 0; step < STEPS; step++) {
                /* Calls that all ranks make are over when the last has returned. */
                double longest = over_ranks(own[step], MPI_MAX, -1);
                if (round && longest >= 0)
                    list_add(&times[step], longest);
            }
        }
        for (int step = 0; step < STEPS; step++) {
            char key[128];
            snprintf(key, sizeof key, "\"benchmark\":\"windows\",\"window\":\"%s\",\"step\":\"%s\",\"size\":%zu",
                     window_names[options->window], step_names[step], size);
            if (own_rank == LEADER && times[step].count)
                print_row(key, "us", &times[step], "");
            list_free(&times[step]);
        }
    }
}

/* Proves that exclusive locks exclude: each origin reads the word, and writes it back one greater. */
static void exclude(MPI_Win window, volatile uint64_t *words, int origins, bool is_origin)
{
    uint64_t value;
    for (int turn = 0; is_origin && turn < TURNS; turn++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, LEADER, 0, window);
        MPI_Get(&value, 1, MPI_UINT64_T, LEADER, 1, 1, MPI_UINT64_T, window);
        MPI_Win_flush(LEADER, window);
        value++;
        MPI_Put(&value, 1, MPI_UINT64_T, LEADER, 1, 1, MPI_UINT64_T, window);
        MPI_Win_unlock(LEADER, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (own_rank == LEADER && words[1] != (uint64_t)(origins * TURNS))
        fail("two origins held the exclusive lock at the same time");
}

static void reset(MPI_Win window, volatile uint64_t *words)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (own_rank == LEADER) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, LEADER, 0, window);
        words[0] = words[1] = 0;
        MPI_Win_unlock(LEADER, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Epochs until the time is over, each with one accumulate; the median of their times goes to `median`. */
static uint64_t contend(MPI_Win window, int type, double seconds, double *took, double *median)
{
    static const uint64_t one = 1;
    struct list times = {0};
    uint64_t begun = now(), epochs = 0;
    do {
        uint64_t epoch = now();
        MPI_Win_lock(type, LEADER, 0, window);
        MPI_Accumulate(&one, 1, MPI_UINT64_T, LEADER, 0, 1, MPI_UINT64_T, MPI_SUM, window);
        MPI_Win_unlock(LEADER, window);
        list_add(&times, microseconds(epoch));
        epochs++;
        *took = (double)(now() - begun) / 1e9;
    } while (*took < seconds);
    *median = list_quantile(&times, 0.5);
    list_free(&times);
    return epochs;
}

static void contention(const struct options *options, MPI_Win window, volatile uint64_t *words, int lock, int origins)
{
    int type = lock ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
    bool is_origin = own_rank != LEADER && own_rank <= origins;
    const char *const names[] = {"throughput", "fairness", "epoch"}, *const units[] = {"op/s", "share", "us"};
    struct list measured[3] = {0};
    reset(window, words);
    if (lock)
        exclude(window, words, origins, is_origin);
    /* The first round warms up. */
    for (int round = 0; round <= options->rounds; round++) {
        double took = 1, median = NAN, epochs = 0;
        reset(window, words);
        if (is_origin)
            epochs = (double)contend(window, type, options->seconds / options->rounds, &took, &median);
        MPI_Barrier(MPI_COMM_WORLD);
        double sum = over_ranks(epochs, MPI_SUM, 0), squares = over_ranks(epochs * epochs, MPI_SUM, 0);
        double rate = over_ranks(epochs / took, MPI_SUM, 0), slowest = over_ranks(median, MPI_MAX, 0);
        if (own_rank == LEADER && (double)words[0] != sum)
            fail("%llu epochs arrived, not %.0f", (unsigned long long)words[0], sum);
        if (round) {
            list_add(&measured[0], rate);
            list_add(&measured[1], sum * sum / (origins * squares));
            list_add(&measured[2], slowest);
        }
    }
    for (int measure = 0; measure < 3; measure++) {
        char key[128];
        snprintf(key, sizeof key, "\"benchmark\":\"locks\",\"lock\":\"%s\",\"measure\":\"%s\",\"origins\":%d",
                 lock_names[lock], names[measure], origins);
        if (own_rank == LEADER)
            print_row(key, units[measure], &measured[measure], "");
        list_free(&measured[measure]);
    }
}

void locks(const struct options *options)
{
    uint64_t *words;
    MPI_Win window;
    MPI_Win_allocate(own_rank == LEADER ? 2 * WORD : 0, WORD, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
    for (int lock = 0; lock < 2; lock++)
        for (int origins = 1;; origins = 2 * origins < ranks - 1 ? 2 * origins : ranks - 1) {
            contention(options, window, words, lock, origins);
            if (origins == ranks - 1)
                break;
        }
    MPI_Win_free(&window);
}
