/* The measurements of `rma-bench` over an MPI library's one-sided calls: the same rows, the same statistics, the same
 * JSON, so that `rma-bench peers` can put both side by side. */
#ifndef PEER_H
#define PEER_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORD sizeof(uint64_t)
#define LEADER 0

enum operation { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP, OPERATIONS };
enum window_kind { CREATE, ALLOCATE, DYNAMIC, SHARED, WINDOW_KINDS };
enum sync { LOCK, LOCK_ALL, FLUSH, FLUSH_LOCAL, FENCE, PSCW, SYNCS };
enum target_kind { IDLE, BUSY, POLLING, TARGET_KINDS };
enum benchmark { LATENCY, BANDWIDTH, RATE, OVERLAP, STALE, WINDOWS, LOCKS, BENCHMARKS };

extern const char *const operation_names[];
extern const char *const window_names[];
extern const char *const sync_names[];
extern const char *const target_names[];
extern const char *const benchmark_names[];

struct options {
    enum benchmark benchmark;
    bool operations[OPERATIONS];
    enum window_kind window;
    enum sync sync;
    enum target_kind target;
    bool exclusive;
    bool bidirectional;
    size_t size_min, size_max;
    size_t outstanding;
    uint64_t iterations; /* 0: as many as fit in `seconds` */
    int64_t warm_up;     /* negative: until batches are stable */
    double seconds;
    int rounds;
    int slices;
};

void options_parse(struct options *options, int argc, char **argv);
/* Ends the job with a message. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *allocate(size_t bytes);

/* What is measured at one size. */
struct row {
    enum operation operation;
    size_t size;
    size_t outstanding;
    uint64_t work; /* steps of computation between the operations and what completes them */
};

struct batches {
    uint64_t count, epochs;
};

struct times {
    uint64_t *batches; /* nanoseconds of each, at those who measure */
    uint64_t wall;
};

/* A growing list of numbers. */
struct list {
    double *values;
    size_t count, room;
};

void list_add(struct list *list, double value);
double list_quantile(const struct list *list, double q);
void list_free(struct list *list);

uint64_t now(void);
/* Computes outside of the library. */
void compute(uint64_t steps);
double nanoseconds_of_a_step(void);

/* What was measured of a row; complete at the leader. */
struct measured {
    struct list times; /* microseconds of an epoch, one for each round */
    struct list rates; /* epochs a second */
    double p99, least;
    uint64_t epochs, batch, warm_up;
};

void measured_free(struct measured *measured);
/* Measures all rows in each round. Collective. */
void measure_rows(const struct options *options, const struct row *rows, size_t count, struct measured *measured);

/* The window of a measurement. Collective. */
void ground_open(const struct options *options, size_t size_max, size_t bytes_max);
void ground_close(void);
/* Batches of one row, checked. Collective. */
void segment(const struct options *options, const struct row *row, struct batches batches, struct times *times);
double turns(const struct options *options);
/* Operations of an epoch. */
void issue(const struct row *row);

struct ground {
    MPI_Win window;
    int partner;
    MPI_Group group; /* of the partner */
    bool measures, accesses, is_target, is_both;
    MPI_Aint disp; /* where this rank's place at its partner begins */
    uint64_t *source, *result, *memory;
    size_t bytes;
    uint64_t epochs, batches_begun;
    enum window_kind kind;
};

extern struct ground ground;
extern int own_rank, ranks;

void ground_begin(const struct row *row);
void ground_check(const struct row *row);

/* Whether what flush has completed is what others read. Collective. */
void stale(const struct options *options);
/* What making a window, touching it first and freeing it takes. Collective. */
void windows(const struct options *options);
/* Contention for one target's lock. Collective. */
void locks(const struct options *options);
/* The extreme or sum over those ranks that have a number; at every rank. */
double over_ranks(double own, MPI_Op op, double neutral);
/* One row as `rma-bench` stores it. `key` and `details` are JSON members, `details` begins with a comma or is empty. */
void print_row(const char *key, const char *unit, const struct list *rounds, const char *details);

#endif
