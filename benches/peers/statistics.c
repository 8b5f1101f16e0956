/* Times, and what is said of them: as in the crate's `plan` and `series`. */
#include "peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A block that takes less than this of the fastest so far still warms up. */
#define STEADY 0.97
#define STEADY_BLOCKS 2
#define WARM_UP_BATCHES 8
#define WARM_UP_MAX 2e9
#define CLOCK_READS 1000
/* Reading the clock is at most one part in this many of what is timed. */
#define CLOCK_SHARE 100.0
#define BATCH_MAX (1ULL << 20)
#define BATCHES_MAX 100000

uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

void compute(uint64_t steps)
{
    uint64_t state = 1;
    for (uint64_t step = 0; step < steps; step++) {
        state = state * 6364136223846793005ULL + 1;
        __asm__ volatile("" : "+r"(state));
    }
}

double nanoseconds_of_a_step(void)
{
    const uint64_t steps = 1000000;
    double least = INFINITY;
    for (int attempt = 0; attempt < 5; attempt++) {
        uint64_t begun = now();
        compute(steps);
        least = fmin(least, (double)(now() - begun) / (double)steps);
    }
    return least;
}

void list_add(struct list *list, double value)
{
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->values = realloc(list->values, list->room * sizeof *list->values);
        if (!list->values)
            fail("no memory for %zu values", list->room);
    }
    list->values[list->count++] = value;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Interpolated between neighbours; not a number when there is none. */
double list_quantile(const struct list *list, double q)
{
    if (!list->count)
        return NAN;
    double *sorted = allocate(list->count * sizeof *sorted);
    memcpy(sorted, list->values, list->count * sizeof *sorted);
    qsort(sorted, list->count, sizeof *sorted, ascending);
    double place = q * (double)(list->count - 1);
    size_t below = (size_t)place, above = below + 1 < list->count ? below + 1 : below;
    double share = place - (double)below, value = sorted[below] * (1 - share) + sorted[above] * share;
    free(sorted);
    return value;
}

void list_free(struct list *list)
{
    free(list->values);
    memset(list, 0, sizeof *list);
}

void measured_free(struct measured *measured)
{
    list_free(&measured->times);
    list_free(&measured->rates);
}

/* Nanoseconds that a batch takes at least. */
static double batch_nanoseconds(void)
{
    uint64_t begun = now();
    for (int read = 0; read < CLOCK_READS; read++)
        (void)now();
    return (double)(now() - begun) / CLOCK_READS * CLOCK_SHARE;
}

static uint64_t next_batch(uint64_t batch, double nanoseconds, double least)
{
    if (nanoseconds >= least)
        return batch;
    double factor = fmin(fmax(least / fmax(nanoseconds, 1.0), 2.0), 16.0);
    uint64_t next = (uint64_t)ceil((double)batch * factor);
    return next < BATCH_MAX ? next : BATCH_MAX;
}

static uint64_t batches_of_a_round(const struct options *options, uint64_t epochs, double nanoseconds)
{
    uint64_t rounds = (uint64_t)options->rounds;
    if (options->iterations) {
        uint64_t each = (options->iterations + rounds - 1) / rounds, count = (each + epochs - 1) / epochs;
        return count ? count : 1;
    }
    double fit = options->seconds * 1e9 / (double)rounds / fmax(nanoseconds, 1.0);
    return fit < 1 ? 1 : fit > BATCHES_MAX ? BATCHES_MAX : (uint64_t)fit;
}

static double median_of(const struct times *times, uint64_t count)
{
    struct list list = {0};
    if (ground.measures)
        for (uint64_t batch = 0; batch < count; batch++)
            list_add(&list, (double)times->batches[batch]);
    double median = list_quantile(&list, 0.5);
    list_free(&list);
    return median;
}

double over_ranks(double own, MPI_Op op, double neutral)
{
    double value = isnan(own) ? neutral : own, all;
    MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
    return all;
}

static struct batches warm_up(const struct options *options, const struct row *row, struct measured *measured)
{
    double least = over_ranks(batch_nanoseconds(), MPI_MAX, 0), best = INFINITY;
    uint64_t begun = now();
    int steady = 0;
    struct batches batches = {1, 1};
    for (;;) {
        struct times times = {allocate(batches.count * sizeof(uint64_t)), 0};
        segment(options, row, batches, &times);
        measured->warm_up += batches.count * batches.epochs;
        double median = over_ranks(median_of(&times, batches.count), MPI_MAX, 0);
        free(times.batches);
        uint64_t epochs = next_batch(batches.epochs, median, least);
        double each = median / (double)batches.epochs;
        bool is_long_enough = epochs == batches.epochs, is_done;
        uint64_t left = 0;
        if (options->warm_up >= 0) {
            uint64_t wanted = (uint64_t)options->warm_up;
            left = wanted > measured->warm_up ? wanted - measured->warm_up : 0;
            is_done = left == 0 && is_long_enough;
        } else {
            if (batches.count > 1 && is_long_enough) {
                steady = each >= best * STEADY ? steady + 1 : 0;
                best = fmin(best, each);
            }
            is_done = steady >= STEADY_BLOCKS || (double)(now() - begun) > WARM_UP_MAX;
        }
        uint64_t count = WARM_UP_BATCHES;
        if (is_done)
            count = batches_of_a_round(options, epochs, each * (double)epochs);
        else if (options->warm_up >= 0 && (left + epochs - 1) / epochs < count)
            count = left ? (left + epochs - 1) / epochs : 1;
        /* Clocks differ: the leader decides. */
        uint64_t told[3] = {epochs, count, is_done};
        MPI_Bcast(told, 3, MPI_UINT64_T, LEADER, MPI_COMM_WORLD);
        batches = (struct batches){.count = told[1], .epochs = told[0]};
        if (told[2]) {
            measured->batch = batches.epochs;
            return batches;
        }
    }
}

static void add_round(const struct options *options, const struct times *times, struct batches batches,
                      struct measured *measured)
{
    uint64_t epochs = batches.count * batches.epochs;
    double each = median_of(times, batches.count) / (double)batches.epochs / 1000.0 / turns(options);
    double rate = ground.measures ? (double)epochs * 1e9 / (double)times->wall : NAN;
    double origins = over_ranks(ground.measures ? 1 : NAN, MPI_SUM, 0);
    list_add(&measured->times, over_ranks(each, MPI_SUM, 0) / origins);
    list_add(&measured->rates, over_ranks(rate, MPI_SUM, 0));
    measured->epochs += epochs;
}

void measure_rows(const struct options *options, const struct row *rows, size_t count, struct measured *measured)
{
    struct batches *plans = allocate(count * sizeof *plans);
    struct list *all = allocate(count * sizeof *all);
    memset(measured, 0, count * sizeof *measured);
    memset(all, 0, count * sizeof *all);
    for (size_t index = 0; index < count; index++)
        plans[index] = warm_up(options, &rows[index], &measured[index]);
    for (int round = 0; round < options->rounds; round++)
        for (size_t step = 0; step < count; step++) {
            /* Each round begins with another row, so that none always follows the same one. */
            size_t index = ((size_t)round + step) % count;
            struct batches batches = plans[index];
            struct times times = {allocate(batches.count * sizeof(uint64_t)), 0};
            segment(options, &rows[index], batches, &times);
            if (ground.measures)
                for (uint64_t batch = 0; batch < batches.count; batch++)
                    list_add(&all[index],
                             (double)times.batches[batch] / (double)batches.epochs / 1000.0 / turns(options));
            add_round(options, &times, batches, &measured[index]);
            free(times.batches);
        }
    for (size_t index = 0; index < count; index++) {
        measured[index].p99 = over_ranks(list_quantile(&all[index], 0.99), MPI_MAX, 0);
        measured[index].least = over_ranks(list_quantile(&all[index], 0), MPI_MIN, INFINITY);
        list_free(&all[index]);
    }
    free(all);
    free(plans);
}
