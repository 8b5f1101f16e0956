/* The command line: that of `rma-bench`, as far as it can be asked of an MPI library. */
#include "peer.h"

#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const operation_names[] = {"put",           "get",          "accumulate",
                                       "get_accumulate", "fetch_and_op", "compare_and_swap"};
const char *const window_names[] = {"create", "allocate", "dynamic", "shared"};
const char *const sync_names[] = {"lock", "lock_all", "flush", "flush_local", "fence", "pscw"};
const char *const target_names[] = {"idle", "busy", "polling"};
const char *const benchmark_names[] = {"latency", "bandwidth", "rate", "overlap", "stale", "windows", "locks"};

enum { TARGET = 256, EXCLUSIVE, SECONDS, SIZE, SLICES, JSON };

static const struct option long_options[] = {
    {"operation", required_argument, NULL, 'o'},   {"window", required_argument, NULL, 'w'},
    {"sync", required_argument, NULL, 's'},        {"sizes", required_argument, NULL, 'm'},
    {"outstanding", required_argument, NULL, 'W'}, {"iterations", required_argument, NULL, 'i'},
    {"warmup", required_argument, NULL, 'x'},      {"rounds", required_argument, NULL, 'r'},
    {"bidirectional", no_argument, NULL, 'b'},     {"target", required_argument, NULL, TARGET},
    {"exclusive", no_argument, NULL, EXCLUSIVE},   {"time", required_argument, NULL, SECONDS},
    {"size", required_argument, NULL, SIZE},       {"slices", required_argument, NULL, SLICES},
    {"json", no_argument, NULL, JSON},             {NULL, 0, NULL, 0},
};

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "peer: rank %d: ", own_rank);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void *allocate(size_t bytes)
{
    /* On a page of its own, and touched: as the crate's buffers, whose memory comes zeroed. */
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes ? bytes : 1))
        fail("no memory for %zu bytes", bytes);
    return memset(memory, 0, bytes);
}

static int one_of(const char *const names[], int count, const char *name, size_t length)
{
    for (int index = 0; index < count; index++)
        if (strlen(names[index]) == length && strncmp(names[index], name, length) == 0)
            return index;
    fail("'%.*s' is nothing that this program knows", (int)length, name);
}

static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || *text == '-' || value > most)
        fail("'%s' is no number up to %llu", text, (unsigned long long)most);
    return value;
}

static double positive(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value <= 3600))
        fail("'%s' is no number of seconds", text);
    return value;
}

static size_t bytes(const char *text, const char **end)
{
    char *unit;
    unsigned long long value = strtoull(text, &unit, 10);
    if (unit == text || *text == '-' || value > INT_MAX)
        fail("'%s' is no number of bytes", text);
    int shift = *unit == 'k' || *unit == 'K' ? 10 : *unit == 'm' || *unit == 'M' ? 20 : 0;
    *end = unit + (shift ? 1 : 0);
    return (size_t)value << shift;
}

static void sizes(struct options *options, const char *text)
{
    const char *end;
    options->size_min = 1;
    options->size_max = bytes(text, &end);
    if (*end == ':') {
        options->size_min = options->size_max;
        options->size_max = bytes(end + 1, &end);
    }
    if (*end || !options->size_min || options->size_min > options->size_max || options->size_max > 1 << 30)
        fail("'%s' are no sizes from 1 to 1G, the smaller first", text);
}

static void operations(struct options *options, const char *text)
{
    memset(options->operations, 0, sizeof options->operations);
    while (*text) {
        size_t length = strcspn(text, ",");
        options->operations[one_of(operation_names, OPERATIONS, text, length)] = true;
        text += length + (text[length] == ',');
    }
}

static void take(struct options *options, int option, const char *value)
{
    switch (option) {
    case 'o': operations(options, value); break;
    case 'w': options->window = (enum window_kind)one_of(window_names, WINDOW_KINDS, value, strlen(value)); break;
    case 's': options->sync = (enum sync)one_of(sync_names, SYNCS, value, strlen(value)); break;
    case 'm': sizes(options, value); break;
    case 'W': options->outstanding = number(value, 65536); break;
    case 'i': options->iterations = number(value, 1000000000); break;
    case 'x': options->warm_up = (int64_t)number(value, 1000000000); break;
    case 'r': options->rounds = (int)number(value, 1000); break;
    case 'b': options->bidirectional = true; break;
    case TARGET: options->target = (enum target_kind)one_of(target_names, TARGET_KINDS, value, strlen(value)); break;
    case EXCLUSIVE: options->exclusive = true; break;
    case SECONDS: options->seconds = positive(value); break;
    case SIZE: options->size_min = options->size_max = number(value, 1 << 20); break;
    case SLICES: options->slices = (int)number(value, 1000); break;
    case JSON: break;
    default: fail("an option that this program does not know");
    }
}

/* Those of rma-bench. */
static const struct {
    size_t min, max;
} defaults[] = {
    [LATENCY] = {1, 4 << 20},    [BANDWIDTH] = {1, 4 << 20},     [RATE] = {8, 8},  [OVERLAP] = {4096, 4 << 20},
    [STALE] = {8, 4096},         [WINDOWS] = {4096, 64 << 20},   [LOCKS] = {8, 8},
};

void options_parse(struct options *options, int argc, char **argv)
{
    if (argc < 2)
        fail("latency, bandwidth, rate, overlap, stale, windows or locks");
    enum benchmark benchmark = (enum benchmark)one_of(benchmark_names, BENCHMARKS, argv[1], strlen(argv[1]));
    *options = (struct options){
        .benchmark = benchmark,
        .operations = {true},
        .window = ALLOCATE,
        .sync = FLUSH,
        .target = POLLING,
        .size_min = defaults[benchmark].min,
        .size_max = defaults[benchmark].max,
        .outstanding = benchmark == BANDWIDTH || benchmark == RATE ? 64 : 1,
        .warm_up = -1,
        .seconds = benchmark == LOCKS ? 1 : 0.5,
        .rounds = 11,
        .slices = 1,
    };
    opterr = own_rank == LEADER;
    for (int option; (option = getopt_long(argc - 1, argv + 1, "o:w:s:m:W:i:x:r:b", long_options, NULL)) != -1;)
        take(options, option, optarg);
    bool is_passive = options->sync != FENCE && options->sync != PSCW;
    if (!is_passive && (options->target != POLLING || benchmark == OVERLAP))
        fail("with fence and pscw targets take part");
    if (benchmark == STALE && options->window != CREATE && options->window != ALLOCATE)
        fail("stale is for created and allocated windows");
    if (benchmark == WINDOWS && options->size_min < WORD)
        fail("windows have at least a word");
    if (options->bidirectional && (benchmark != BANDWIDTH || options->target != POLLING))
        fail("both ways is for bandwidth");
    if (!options->rounds || !options->slices || !options->outstanding)
        fail("at least one, please: rounds, slices, operations");
}
