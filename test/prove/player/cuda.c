/*
 * Plays libcuda.so.1 with one GPU at 0000:3b:00.0. All octets of its UUID are 3b, and those of its instances, if it is
 * divided, are 01 and 02. CUDA_VISIBLE_DEVICES has one UUID. PLAY in the environment says how:
 *
 *	right            it computes, in memory of this process
 *	wrong            one number of a million is wrong
 *	call CODE        the function of that name returns the code, such as "cuInit 100"
 *	hang             cuCtxSynchronize never returns
 *	crash            cuLaunchKernel ends the process by a signal
 *	chatter          it prints to standard output and standard error
 *	garbage          it writes to every descriptor that is open
 *	old              it takes only PTX 6.0
 *	who              the name of the device is what the process is: user, capabilities, new privileges, environment
 *	node PATH        it creates a device node
 *	divided          the GPU is divided; without CUDA_VISIBLE_DEVICES its first instance is seen
 *	divided wrong    so it is, and the second instance computes wrongly
 *	other            another GPU is divided, and hides this one without CUDA_VISIBLE_DEVICES
 *	deaf             it ignores CUDA_VISIBLE_DEVICES
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

extern char **environ;

static const char *play(void)
{
	const char *how = getenv("PLAY");
	return how ? how : "right";
}

static int is(const char *how) { return strcmp(play(), how) == 0; }

/* code is what a function returns, as the script says. */
static int code(const char *function)
{
	size_t n = strlen(function);
	if (strncmp(play(), function, n) == 0 && play()[n] == ' ')
		return atoi(play() + n + 1);
	return 0;
}

/* visible is the octet of the UUID of what is seen, 0 for nothing. */
static int visible(void)
{
	const char *only = getenv("CUDA_VISIBLE_DEVICES");
	int divided = strncmp(play(), "divided", 7) == 0;
	if (!only || is("deaf"))
		return divided ? 1 : is("other") ? 0xff : 0x3b;
	if (strcmp(only, "GPU-3b3b3b3b-3b3b-3b3b-3b3b-3b3b3b3b3b3b") == 0)
		return divided ? 1 : 0x3b;
	if (divided && strcmp(only, "MIG-01010101-0101-0101-0101-010101010101") == 0)
		return 1;
	if (divided && strcmp(only, "MIG-02020202-0202-0202-0202-020202020202") == 0)
		return 2;
	return 0;
}

int cuInit(unsigned flags)
{
	const char *cache = getenv("CUDA_CACHE_DISABLE");
	(void)flags;
	if (!cache || strcmp(cache, "1"))
		return 999; /* the second proof would prove the cache */
	if (is("chatter")) {
		printf("{\"device\": \"a line of the library's\"}\n");
		fflush(stdout);
		fprintf(stderr, "a warning\n");
	}
	if (is("garbage"))
		for (int fd = 0; fd < 64; fd++)
			if (write(fd, "\xff\xfe{\n\n", 5) < 0)
				continue;
	if (strncmp(play(), "node ", 5) == 0 && mknod(play() + 5, S_IFCHR | 0666, makedev(195, 255)))
		return 304;
	if (!visible())
		return 100;
	return code("cuInit");
}

int cuDriverGetVersion(int *version)
{
	*version = 12020;
	return code("cuDriverGetVersion");
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return code("cuDeviceGet");
}

int cuDeviceGetByPCIBusId(int *device, const char *address)
{
	*device = 0;
	if (strcmp(address, "0000:3b:00.0") || visible() == 0xff)
		return 1;
	return code("cuDeviceGetByPCIBusId");
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
	(void)device;
	memset(uuid, visible(), 16);
	return code("cuDeviceGetUuid_v2");
}

/* status copies a line of /proc/self/status. */
static void status(char *to, size_t size, const char *key)
{
	char line[512];
	FILE *f = fopen("/proc/thread-self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0) {
			line[strcspn(line, "\n")] = 0;
			strncat(to, line, size - strlen(to) - 1);
			strncat(to, ";", size - strlen(to) - 1);
		}
	if (f)
		fclose(f);
}

int cuDeviceGetName(char *name, int size, int device)
{
	(void)device;
	snprintf(name, size, visible() < 3 ? "played instance %d" : "played GPU", visible());
	if (is("who")) {
		name[0] = 0;
		status(name, size, "Uid:");
		status(name, size, "Groups:");
		status(name, size, "CapEff:");
		status(name, size, "CapPrm:");
		status(name, size, "NoNewPrivs:");
	}
	if (is("environment")) {
		name[0] = 0;
		for (char **v = environ; *v; v++) {
			strncat(name, *v, strcspn(*v, "="));
			strncat(name, " ", 2);
		}
	}
	return code("cuDeviceGetName");
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	(void)device;
	*context = (void *)0x1;
	return code("cuDevicePrimaryCtxRetain");
}

int cuCtxSetCurrent(void *context) { return context == (void *)0x1 ? code("cuCtxSetCurrent") : 201; }

int cuModuleLoadDataEx(void **module, const char *image, unsigned count, int *options, void **values)
{
	if (count != 2 || options[0] != 5 || options[1] != 6 || (uintptr_t)values[1] != 4096)
		return 1;
	if (!strstr(image, ".visible .entry work("))
		return 218;
	if (is("old") && !strstr(image, ".version 6.0\n.target sm_50")) {
		snprintf(values[0], 4096, "ptxas fatal : Unsupported .version\n");
		return 222;
	}
	if (code("cuModuleLoadDataEx"))
		snprintf(values[0], 4096, "ptxas fatal : this is why\n");
	*module = (void *)0x2;
	return code("cuModuleLoadDataEx");
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = (void *)0x3;
	return module == (void *)0x2 && strcmp(name, "work") == 0 ? code("cuModuleGetFunction") : 500;
}

int cuMemAlloc_v2(uint64_t *memory, size_t size)
{
	*memory = (uint64_t)(uintptr_t)malloc(size);
	return code("cuMemAlloc_v2");
}

int cuMemcpyHtoD_v2(uint64_t memory, const void *from, size_t size)
{
	memcpy((void *)(uintptr_t)memory, from, size);
	return code("cuMemcpyHtoD_v2");
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared, void *stream, void **parameters, void **extra)
{
	uint32_t *numbers = (uint32_t *)(uintptr_t) * (uint64_t *)parameters[0];
	uint32_t count = *(uint32_t *)parameters[1];
	if (function != (void *)0x3 || gy * gz * by * bz != 1 || shared || stream || extra || gx * bx < count)
		return 1;
	if (is("crash"))
		abort();
	for (uint32_t i = 0; i < count; i++)
		for (int step = 0; step < 64; step++) {
			numbers[i] = numbers[i] * 1664525u + 1013904223u;
			numbers[i] ^= numbers[i] >> 16;
		}
	if (is("wrong") || (is("divided wrong") && visible() == 2))
		numbers[777777] ^= 1;
	return code("cuLaunchKernel");
}

int cuCtxSynchronize(void)
{
	while (is("hang"))
		pause();
	return code("cuCtxSynchronize");
}

int cuMemcpyDtoH_v2(void *to, uint64_t memory, size_t size)
{
	memcpy(to, (void *)(uintptr_t)memory, size);
	return code("cuMemcpyDtoH_v2");
}
