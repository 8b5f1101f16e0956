/* The measurements of `rma-bench` over an MPI library: those of the crate's commands with the same names. */
#include "peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are outstanding at once at most. */
#define OUTSTANDING_BYTES ((size_t)64 << 20)
#define ROWS_MAX 64

int own_rank, ranks;

static size_t rows_of(const struct options *options, enum operation operation, struct row *rows)
{
    size_t count = 0;
    if (operation == FETCH_AND_OP || operation == COMPARE_AND_SWAP) {
        rows[count++] = (struct row){operation, WORD, options->outstanding, 0};
        return count;
    }
    for (size_t size = options->size_min; size <= options->size_max; size *= 2) {
        size_t fit = OUTSTANDING_BYTES / size, outstanding = options->outstanding;
        if (options->benchmark == BANDWIDTH && outstanding > fit)
            outstanding = fit ? fit : 1;
        if (operation == PUT || operation == GET || size % WORD == 0)
            rows[count++] = (struct row){operation, size, outstanding, 0};
    }
    if (!count)
        rows[count++] = (struct row){operation, WORD, options->outstanding, 0};
    return count;
}

static void print_list(const struct list *list)
{
    for (size_t index = 0; index < list->count; index++)
        printf("%s%.5e", index ? "," : "", list->values[index]);
}

/* A JSON string; what cannot stand in one is left out. */
static void print_text(const char *name, const char *text, size_t length)
{
    printf("\"%s\":\"", name);
    for (size_t at = 0; at < length && text[at] >= ' '; at++)
        if (text[at] != '"' && text[at] != '\\')
            putchar(text[at]);
    putchar('"');
}

static void print_environment(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "", host[256] = "", when[32] = "";
    int length;
    time_t seconds = time(NULL);
    MPI_Get_library_version(version, &length);
    gethostname(host, sizeof host - 1);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    print_text("time", when, strlen(when));
    putchar(',');
    print_text("library", version, strlen(version));
    putchar(',');
    print_text("host", host, strlen(host));
    /* What the caller has set, as NAME=VALUE words. */
    const char *settings = getenv("PEER_SETTINGS");
    printf(",\"ranks\":%d,\"settings\":{", ranks);
    for (int count = 0; settings && *settings; count++) {
        size_t word = strcspn(settings, " "), equals = strcspn(settings, "= ");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)equals, settings);
        if (count)
            putchar(',');
        if (equals < word)
            print_text(name, settings + equals + 1, word - equals - 1);
        else
            print_text(name, "", 0);
        settings += word + strspn(settings + word, " ");
    }
    putchar('}');
}

void print_row(const char *key, const char *unit, const struct list *rounds, const char *details)
{
    printf("{%s,\"unit\":\"%s\",\"median\":%.5e,\"rounds\":[", key, unit, list_quantile(rounds, 0.5));
    print_list(rounds);
    printf("]%s,\"environment\":{", details);
    print_environment();
    printf("}}\n");
    fflush(stdout);
}

static void epochs_name(const struct options *options, char *name, size_t room)
{
    snprintf(name, room, "%s%s", sync_names[options->sync], options->exclusive ? " exclusive" : "");
}

static void report(const struct options *options, const struct row *row, struct measured *measured)
{
    char key[512], details[256], sync[64];
    const char *operation = operation_names[row->operation], *window = window_names[options->window];
    epochs_name(options, sync, sizeof sync);
    snprintf(details, sizeof details, ",\"epochs\":%llu,\"warm_up\":%llu", (unsigned long long)measured->epochs,
             (unsigned long long)measured->warm_up);
    double each = (double)row->outstanding;
    switch (options->benchmark) {
    case LATENCY:
        snprintf(key, sizeof key,
                 "\"benchmark\":\"latency\",\"operation\":\"%s\",\"window\":\"%s\",\"sync\":\"%s\",\"target\":\"%s\","
                 "\"pattern\":\"pairs\",\"size\":%zu",
                 operation, window, sync, target_names[options->target], row->size);
        snprintf(details, sizeof details,
                 ",\"p99\":%.5e,\"min\":%.5e,\"epochs\":%llu,\"batch\":%llu,\"warm_up\":%llu", measured->p99,
                 measured->least, (unsigned long long)measured->epochs, (unsigned long long)measured->batch,
                 (unsigned long long)measured->warm_up);
        print_row(key, "us", &measured->times, details);
        break;
    case BANDWIDTH:
        for (size_t round = 0; round < measured->rates.count; round++)
            measured->rates.values[round] *= each * (double)row->size / 1e6;
        snprintf(key, sizeof key,
                 "\"benchmark\":\"bandwidth\",\"operation\":\"%s\",\"direction\":\"%s\",\"window\":\"%s\",\"sync\":\"%s\","
                 "\"size\":%zu,\"outstanding\":%zu",
                 operation, options->bidirectional ? "both ways" : "one way", window, sync, row->size,
                 row->outstanding);
        print_row(key, "MB/s", &measured->rates, details);
        break;
    default:
        for (size_t round = 0; round < measured->rates.count; round++)
            measured->rates.values[round] *= each;
        snprintf(key, sizeof key,
                 "\"benchmark\":\"rate\",\"operation\":\"%s\",\"size\":%zu,\"window\":\"%s\",\"sync\":\"%s\","
                 "\"outstanding\":%zu,\"pattern\":\"pairs\",\"pairs\":%d,\"threads\":1",
                 operation, row->size, window, sync, row->outstanding, ranks / 2);
        print_row(key, "op/s", &measured->rates, details);
    }
}

static void report_overlap(const struct options *options, const struct row *row, const struct measured measured[3])
{
    const char *names[] = {"communication", "computation", "both", "overlap"};
    struct list share = {0};
    for (size_t round = 0; round < measured[0].times.count; round++) {
        double communication = measured[0].times.values[round], computation = measured[1].times.values[round];
        double hidden = 1 - (measured[2].times.values[round] - computation) / communication;
        list_add(&share, fmin(fmax(hidden, 0), 1));
    }
    for (int measure = 0; measure < 4; measure++) {
        char key[512], sync[64];
        epochs_name(options, sync, sizeof sync);
        snprintf(key, sizeof key,
                 "\"benchmark\":\"overlap\",\"operation\":\"%s\",\"measure\":\"%s\",\"window\":\"%s\",\"sync\":\"%s\","
                 "\"target\":\"%s\",\"slices\":%d,\"size\":%zu",
                 operation_names[row->operation], names[measure], window_names[options->window], sync,
                 target_names[options->target], options->slices, row->size);
        print_row(key, measure < 3 ? "us" : "share", measure < 3 ? &measured[measure].times : &share, "");
    }
    list_free(&share);
}

/* Communication alone, computation that takes as long, and both at once, in each round. */
static void measure_overlap(const struct options *options, const struct row *rows, size_t count)
{
    struct measured first[ROWS_MAX], measured[3 * ROWS_MAX];
    struct row three[3 * ROWS_MAX];
    struct options brief = *options;
    brief.rounds = 1;
    measure_rows(&brief, rows, count, first);
    double step = nanoseconds_of_a_step();
    for (size_t index = 0; index < count; index++) {
        uint64_t work = (uint64_t)fmax(first[index].times.values[0] * 1000.0 / step, 1);
        MPI_Bcast(&work, 1, MPI_UINT64_T, LEADER, MPI_COMM_WORLD);
        struct row row = rows[index];
        three[3 * index] = row;
        three[3 * index + 1] = (struct row){row.operation, row.size, 0, work};
        three[3 * index + 2] = (struct row){row.operation, row.size, row.outstanding, work};
        measured_free(&first[index]);
    }
    measure_rows(options, three, 3 * count, measured);
    for (size_t index = 0; index < 3 * count; index++) {
        if (own_rank == LEADER && index % 3 == 0)
            report_overlap(options, &rows[index / 3], &measured[index]);
    }
    for (size_t index = 0; index < 3 * count; index++)
        measured_free(&measured[index]);
}

static void measure(const struct options *options)
{
    for (int operation = 0; operation < OPERATIONS; operation++) {
        struct row rows[ROWS_MAX];
        struct measured measured[ROWS_MAX];
        if (!options->operations[operation])
            continue;
        size_t count = rows_of(options, (enum operation)operation, rows), bytes_max = 0, size_max = 0;
        for (size_t index = 0; index < count; index++) {
            size_t bytes = rows[index].size * rows[index].outstanding;
            bytes_max = bytes > bytes_max ? bytes : bytes_max;
            size_max = rows[index].size > size_max ? rows[index].size : size_max;
        }
        if (bytes_max > (size_t)1 << 30)
            fail("%zu bytes are outstanding at once, more than 1 GiB", bytes_max);
        ground_open(options, size_max, bytes_max);
        if (options->benchmark == OVERLAP) {
            measure_overlap(options, rows, count);
        } else {
            measure_rows(options, rows, count, measured);
            for (size_t index = 0; index < count; index++) {
                if (own_rank == LEADER)
                    report(options, &rows[index], &measured[index]);
                measured_free(&measured[index]);
            }
        }
        ground_close();
    }
}

int main(int argc, char **argv)
{
    struct options options;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    options_parse(&options, argc, argv);
    if (ranks < 2)
        fail("this takes 2 ranks at least");
    switch (options.benchmark) {
    case STALE: stale(&options); break;
    case WINDOWS: windows(&options); break;
    case LOCKS: locks(&options); break;
    default: measure(&options);
    }
    MPI_Finalize();
    return 0;
}
