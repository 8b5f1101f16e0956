/* Epochs of all ranks, timed at the origins. */
#include "peer.h"

#include <time.h>

/* How long a target that computes or sleeps does so before it calls the library again, nanoseconds. */
#define AWAY 20000000ULL
#define OVER 77

double turns(const struct options *options)
{
    /* Origin and target access each other in turn, as the origin's calls may return before the target has the data;
     * where both access at once, or many operations are counted, an epoch is what the origin sees of it. */
    bool is_latency = options->benchmark == LATENCY;
    return options->sync == PSCW && is_latency ? 2 : 1;
}

static void lock(const struct options *options)
{
    MPI_Win_lock(options->exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, ground.partner, 0, ground.window);
}

/* The computation, in pieces with a look at the library between them. */
static void work(const struct options *options, const struct row *row)
{
    if (!row->work)
        return;
    uint64_t slices = (uint64_t)options->slices;
    for (uint64_t slice = 0; slice < slices; slice++) {
        if (slice) {
            int flag;
            MPI_Iprobe(MPI_ANY_SOURCE, OVER, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
        compute(row->work / slices);
    }
}

static void access_partner(const struct row *row)
{
    MPI_Win_start(ground.group, 0, ground.window);
    issue(row);
    MPI_Win_complete(ground.window);
}

static void expose(void)
{
    MPI_Win_post(ground.group, 0, ground.window);
}

/* What is timed. */
static void epoch(const struct options *options, const struct row *row)
{
    switch (options->sync) {
    case LOCK:
        lock(options);
        issue(row);
        work(options, row);
        MPI_Win_unlock(ground.partner, ground.window);
        break;
    case LOCK_ALL:
        MPI_Win_lock_all(0, ground.window);
        issue(row);
        work(options, row);
        MPI_Win_unlock_all(ground.window);
        break;
    case FLUSH:
        issue(row);
        work(options, row);
        MPI_Win_flush(ground.partner, ground.window);
        break;
    case FLUSH_LOCAL:
        issue(row);
        work(options, row);
        MPI_Win_flush_local(ground.partner, ground.window);
        break;
    case FENCE:
        issue(row);
        MPI_Win_fence(0, ground.window);
        break;
    default:
        if (ground.is_both)
            expose();
        access_partner(row);
        if (turns(options) > 1)
            expose();
        if (ground.is_both || turns(options) > 1)
            MPI_Win_wait(ground.window);
    }
}

static void run(const struct options *options, const struct row *row, struct batches batches, struct times *times)
{
    uint64_t wall = now();
    bool stays_locked = options->sync == FLUSH || options->sync == FLUSH_LOCAL;
    if (stays_locked)
        lock(options);
    if (options->sync == FENCE)
        MPI_Win_fence(MPI_MODE_NOPRECEDE, ground.window);
    for (uint64_t batch = 0; batch < batches.count; batch++) {
        uint64_t begun = now();
        for (uint64_t at = 0; at < batches.epochs; at++)
            epoch(options, row);
        times->batches[batch] = now() - begun;
    }
    if (stays_locked)
        MPI_Win_unlock(ground.partner, ground.window);
    if (options->sync == FENCE)
        MPI_Win_fence(MPI_MODE_NOSUCCEED, ground.window);
    times->wall = now() - wall;
}

/* What a rank that does not measure does in epochs that it has to take part in. */
static void answer(const struct options *options, const struct row *row, struct batches batches)
{
    uint64_t epochs = batches.count * batches.epochs;
    if (options->sync == FENCE) {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, ground.window);
        for (uint64_t at = 0; at < epochs; at++)
            MPI_Win_fence(0, ground.window);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, ground.window);
    } else if (ground.is_target) {
        for (uint64_t at = 0; at < epochs; at++) {
            expose();
            MPI_Win_wait(ground.window);
            if (turns(options) > 1)
                access_partner(row);
        }
    }
}

/* What a target does until its origin says that it is done; one that polls is in the barrier that follows. */
static void rest(const struct options *options)
{
    int is_over = options->target == POLLING || !ground.is_target;
    if (is_over)
        return;
    while (!is_over) {
        uint64_t away = now();
        if (options->target == IDLE) {
            struct timespec time = {0, (long)AWAY};
            nanosleep(&time, NULL);
        }
        while (now() - away < AWAY)
            compute(1000);
        MPI_Iprobe(ground.partner, OVER, MPI_COMM_WORLD, &is_over, MPI_STATUS_IGNORE);
    }
    MPI_Recv(NULL, 0, MPI_BYTE, ground.partner, OVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void segment(const struct options *options, const struct row *row, struct batches batches, struct times *times)
{
    bool is_passive = options->sync != FENCE && options->sync != PSCW;
    if (ground.accesses)
        ground_begin(row);
    MPI_Barrier(MPI_COMM_WORLD);
    if (ground.measures) {
        run(options, row, batches, times);
        if (is_passive && options->target != POLLING)
            MPI_Send(NULL, 0, MPI_BYTE, ground.partner, OVER, MPI_COMM_WORLD);
    } else if (is_passive) {
        rest(options);
    } else {
        answer(options, row, batches);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (ground.accesses)
        ground_check(row);
    /* Nobody begins the next while another still reads what is checked. */
    MPI_Barrier(MPI_COMM_WORLD);
}
