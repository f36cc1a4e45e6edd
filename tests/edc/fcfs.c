/* A small decision component against the C interface of Batsim 5: first come, first served, in both serialisations.
 *
 * Init data: words separated by blanks. `json` chooses JSON (otherwise FlatBuffers); the others make it misbehave at its
 * second call: abort, segfault, hang, error, garbage, nothing, truncated, exit; at its first: no-hello, init-error. `late`
 * makes it abort when the third job has ended; `chatty` makes it print its calls.
 * No library is used: FlatBuffers are read and written by hand, so the tests do not share code with what they test.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_HOSTS 4096
#define MOST_ID 64

typedef struct job { char id[MOST_ID]; uint32_t size; uint32_t *hosts, held; struct job *next; } job;

static job *first, **last = &first, *running;
static uint8_t taken[MOST_HOSTS];
static uint32_t host_count, free_count;
static int json, calls;
static char mischief[32];
static int ends;
static uint8_t *out;
static size_t size, room;
static uint32_t orders;

/* ---- what it decides */

static void submitted(const char *id, uint32_t wanted) {
    job *j = calloc(1, sizeof *j);
    j->hosts = malloc((wanted + 1) * sizeof *j->hosts);
    snprintf(j->id, MOST_ID, "%s", id);
    j->size = wanted;
    *last = j;
    last = &j->next;
}

static void ended(const char *id) {
    if (++ends == 3 && !strcmp(mischief, "late")) abort();
    for (job **p = &running; *p; p = &(*p)->next) {
        job *j = *p;
        if (strcmp(j->id, id)) continue;
        for (uint32_t i = 0; i < j->held; i++) taken[j->hosts[i]] = 0;
        free_count += j->held;
        *p = j->next;
        free(j->hosts);
        free(j);
        return;
    }
}

static void execute(double now, const char *id, const char *hosts);

static void decide(double now) {
    while (first && first->size <= free_count) {
        job *j = first;
        char text[MOST_HOSTS * 6];
        size_t n = 0;
        for (uint32_t h = 0; h < host_count && j->held < j->size; h++) {
            if (taken[h]) continue;
            taken[h] = 1;
            j->hosts[j->held++] = h;
            n += (size_t)sprintf(text + n, n ? " %u" : "%u", h);
        }
        free_count -= j->held;
        first = j->next;
        if (!first) last = &first;
        j->next = running;
        running = j;
        execute(now, j->id, text);
    }
}

/* ---- writing */

static void need(size_t more) {
    if (size + more + 64 > room) {
        room = (size + more + 64) * 2;
        out = realloc(out, room);
    }
}

static void put(const void *data, size_t n) {
    need(n);
    memcpy(out + size, data, n);
    size += n;
}

static void text(const char *s) { put(s, strlen(s)); }
static void pad(size_t to) { need(8); while (size % to) out[size++] = 0; }
static void u32_at(size_t at, uint32_t v) { memcpy(out + at, &v, 4); }
static void point(size_t at) { u32_at(at, (uint32_t)(size - at)); }

typedef struct { int slot, bytes; uint64_t value; size_t at; } field;

/* Writes a table, its vtable in front; where each field lies is noted in `at`. Returns the place of the table. */
static size_t table(int slots, int n, field *f) {
    need(256);
    pad(8);
    size_t vtable = size;
    uint16_t head[2 + 32] = {(uint16_t)(4 + 2 * slots), 4};
    size += 4 + 2 * (size_t)slots;
    pad(8);
    size_t at = size;
    uint32_t back = (uint32_t)(at - vtable);
    put(&back, 4);
    for (int i = 0; i < n; i++) {
        pad((size_t)f[i].bytes);
        f[i].at = size;
        head[2 + f[i].slot] = (uint16_t)(size - at);
        put(&f[i].value, (size_t)f[i].bytes);
    }
    head[1] = (uint16_t)(size - at);
    memcpy(out + vtable, head, 4 + 2 * (size_t)slots);
    return at;
}

static void string(size_t at, const char *s) {
    pad(4);
    point(at);
    uint32_t n = (uint32_t)strlen(s);
    put(&n, 4);
    put(s, n + 1);
}

static size_t vector_at;

static void begin(double now, uint32_t most) {
    size = 0;
    orders = 0;
    if (json) {
        char head[64];
        sprintf(head, "{\"now\": %.12f, \"events\": [", now);
        text(head);
        return;
    }
    uint64_t bits;
    memcpy(&bits, &now, 8);
    put("\0\0\0\0\0\0\0", 8);
    field f[] = {{0, 8, bits, 0}, {1, 4, 0, 0}};
    size_t at = table(2, 2, f);
    u32_at(0, (uint32_t)at);
    pad(4);
    point(f[1].at);
    vector_at = size;
    put("\0\0\0", 4);
    need(4 * (size_t)most);
    memset(out + size, 0, 4 * (size_t)most);
    size += 4 * (size_t)most;
}

static size_t event(double at, uint8_t type) {
    uint64_t bits;
    memcpy(&bits, &at, 8);
    field f[] = {{0, 8, bits, 0}, {2, 4, 0, 0}, {1, 1, type, 0}};
    size_t entry = vector_at + 4 + 4 * (size_t)orders;
    size_t t = table(3, 3, f);
    u32_at(entry, (uint32_t)(t - entry));
    orders++;
    u32_at(vector_at, orders);
    return f[1].at;
}

static void refer(size_t slot, size_t target) { u32_at(slot, (uint32_t)(target - slot)); }

static void execute(double now, const char *id, const char *hosts) {
    if (json) {
        char head[256];
        sprintf(head, "%s{\"timestamp\": %.12f, \"event_type\": \"ExecuteJobEvent\", \"event\": {\"job_id\": \"%s\", ",
                orders++ ? ", " : "", now, id);
        text(head);
        text("\"allocation\": {\"host_allocation\": \"");
        text(hosts);
        text("\", \"executor_placement_type\": \"PredefinedExecutorPlacementStrategyWrapper\", \"executor_placement\": {}}, "
             "\"profile_allocation_override\": [], \"storage_placement\": []}}");
        return;
    }
    /* The library of the real components writes empty vectors rather than nothing. */
    size_t slot = event(now, 4);
    field e[] = {{0, 4, 0, 0}, {1, 4, 0, 0}, {2, 4, 0, 0}, {3, 4, 0, 0}};
    refer(slot, table(4, 4, e));
    string(e[0].at, id);
    for (int i = 2; i < 4; i++) {
        pad(4);
        point(e[i].at);
        put("\0\0\0", 4);
    }
    field a[] = {{0, 4, 0, 0}, {2, 4, 0, 0}, {1, 1, 1, 0}};
    refer(e[1].at, table(3, 3, a));
    string(a[0].at, hosts);
    refer(a[1].at, table(1, 0, NULL));
}

static void hello(void) {
    begin(0, 1);
    if (json) {
        if (strcmp(mischief, "no-hello"))
            text("{\"timestamp\": 0, \"event_type\": \"EDCHelloEvent\", \"event\": {\"batprotocol_version\": \"1.0.0\", "
                 "\"decision_component_name\": \"c-fcfs\", \"decision_component_version\": \"1\", "
                 "\"decision_component_commit\": \"\", \"requested_simulation_features\": {}}}");
        return;
    }
    if (!strcmp(mischief, "no-hello")) return;
    size_t slot = event(0, 18);
    field h[] = {{0, 4, 0, 0}, {1, 4, 0, 0}, {2, 4, 0, 0}, {3, 4, 0, 0}, {4, 4, 0, 0}};
    refer(slot, table(6, 5, h));
    string(h[0].at, "1.0.0");
    string(h[1].at, "c-fcfs");
    string(h[2].at, "1");
    string(h[3].at, "");
    refer(h[4].at, table(7, 0, NULL));
}

/* ---- reading */

static uint32_t u32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }

static const uint8_t *slot_of(const uint8_t *t, int slot) {
    int32_t back;
    memcpy(&back, t, 4);
    const uint8_t *vtable = t - back;
    uint16_t bytes, offset;
    memcpy(&bytes, vtable, 2);
    if (4 + 2 * slot >= bytes) return NULL;
    memcpy(&offset, vtable + 4 + 2 * slot, 2);
    return offset ? t + offset : NULL;
}

static const uint8_t *follow(const uint8_t *p) { return p + u32(p); }

static uint32_t read_binary(const uint8_t *data, double *now) {
    const uint8_t *message = follow(data), *p = slot_of(message, 0);
    *now = 0;
    if (p) memcpy(now, p, 8);
    const uint8_t *events = follow(slot_of(message, 1));
    uint32_t n = u32(events), waiting = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *item = follow(events + 4 + 4 * i), *e = follow(slot_of(item, 2));
        switch (*slot_of(item, 1)) {
        case 1: {
            const uint8_t *wanted = slot_of(follow(slot_of(e, 1)), 0);
            submitted((const char *)follow(slot_of(e, 0)) + 4, wanted ? u32(wanted) : 0);
            break;
        }
        case 2: ended((const char *)follow(slot_of(e, 0)) + 4); break;
        case 19: host_count = free_count = u32(slot_of(e, 1)); break;
        }
    }
    for (job *j = first; j; j = j->next) waiting++;
    return waiting;
}

static const char *value(const char *from, const char *key, const char *end) {
    const char *p = strstr(from, key);
    return p && p < end ? p + strlen(key) : NULL;
}

static uint32_t read_json(const char *data, double *now) {
    static const char mark[] = "\"event_type\": \"";
    char id[MOST_ID];
    *now = atof(value(data, "\"now\": ", data + 16));
    for (const char *p = strstr(data, mark); p;) {
        p += sizeof mark - 1;
        const char *next = strstr(p, mark), *end = next ? next : p + strlen(p), *v;
        if ((v = value(p, "\"job_id\": \"", end))) {
            size_t n = strcspn(v, "\"");
            snprintf(id, MOST_ID, "%.*s", (int)n, v);
        }
        if (!strncmp(p, "JobSubmittedEvent", 17)) submitted(id, (uint32_t)atol(value(p, "\"resource_request\": ", end)));
        else if (!strncmp(p, "JobCompletedEvent", 17)) ended(id);
        else if (!strncmp(p, "SimulationBegins", 16))
            host_count = free_count = (uint32_t)atol(value(p, "\"computation_host_number\": ", end));
        p = next;
    }
    uint32_t waiting = 0;
    for (job *j = first; j; j = j->next) waiting++;
    return waiting;
}

/* ---- the interface */

uint8_t batsim_edc_init(const uint8_t *data, uint32_t n, uint32_t *flags, uint8_t **reply, uint32_t *reply_size) {
    char word[32];
#ifdef WANTS_INIT /* 1: crashes without an init string, 2: returns an error, 3: wants another one than {} */
    if (!n && WANTS_INIT == 1) abort();
    if (!n || (WANTS_INIT == 3 && data[0] == '{')) return 7;
#endif
    for (uint32_t i = 0; i < n;) {
        uint32_t k = 0;
        while (i < n && data[i] != ' ' && data[i] != '\n' && k < sizeof word - 1) word[k++] = (char)data[i++];
        word[k] = 0;
        if (!strcmp(word, "json")) json = 1;
        else if (k) strcpy(mischief, word);
        while (i < n && (data[i] == ' ' || data[i] == '\n')) i++;
    }
    *flags = json ? 2 : 1;
    if (!strcmp(mischief, "init-error")) return 7;
    hello();
    if (json) put("]}", 3);
    *reply = out;
    *reply_size = (uint32_t)size;
    return 0;
}

uint8_t batsim_edc_deinit(void) {
    free(out);
    out = NULL;
    return 0;
}

uint8_t batsim_edc_take_decisions(const uint8_t *in, uint32_t n, uint8_t **reply, uint32_t *reply_size) {
    double now;
    (void)n;
    if (!strcmp(mischief, "chatty")) printf("call %d\n", calls + 1);
    if (++calls == 2) {
        if (!strcmp(mischief, "abort")) abort();
        if (!strcmp(mischief, "segfault")) raise(SIGSEGV);
        if (!strcmp(mischief, "hang")) for (;;) pause();
        if (!strcmp(mischief, "error")) return 3;
        if (!strcmp(mischief, "exit")) _exit(5);
        if (!strcmp(mischief, "nothing")) return 0;
        if (!strcmp(mischief, "garbage")) {
            *reply = (uint8_t *)"this is no message of any kind";
            *reply_size = 30;
            return 0;
        }
    }
    uint32_t waiting = json ? read_json((const char *)in, &now) : read_binary(in, &now);
    begin(now, waiting);
    decide(now);
    if (json) put("]}", 3);
    *reply = out;
    *reply_size = calls == 2 && !strcmp(mischief, "truncated") ? (uint32_t)size / 2 : (uint32_t)size;
    return 0;
}
