/* Loads a decision component as Batsim 5 does, and calls it: drive LIBRARY dlopen|dlmopen INIT.
 *
 * Requests come on stdin and replies go to stdout, each as a u32 (size) and the bytes; first the flags and the hello.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(const void *data, uint32_t size) {
    fwrite(&size, 4, 1, stdout);
    fwrite(data, 1, size, stdout);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    void *library = strcmp(argv[2], "dlmopen") ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
                                               : dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 3;
    uint8_t (*init)(const uint8_t *, uint32_t, uint32_t *, uint8_t **, uint32_t *) = dlsym(library, "batsim_edc_init");
    uint8_t (*take)(const uint8_t *, uint32_t, uint8_t **, uint32_t *) = dlsym(library, "batsim_edc_take_decisions");
    uint8_t (*deinit)(void) = dlsym(library, "batsim_edc_deinit");
    uint8_t *reply, *request = NULL;
    uint32_t size, flags;
    if (init((const uint8_t *)argv[3], (uint32_t)strlen(argv[3]), &flags, &reply, &size)) return 4;
    put(&flags, 4);
    put(reply, size);
    while (fread(&size, 4, 1, stdin) == 1) {
        request = realloc(request, size);
        if (fread(request, 1, size, stdin) != size) return 5;
        if (take(request, size, &reply, &size)) return 6;
        put(reply, size);
    }
    free(request);
    return deinit();
}
