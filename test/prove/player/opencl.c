/*
 * Plays libOpenCL.so.1. CARDS in the environment says which devices there are, one platform each: by which extension
 * each says its PCI address, and the address, such as "khr 0000:3b:00.0,nv 0000:3c:00.1,amd 0000:3d:00.0,none -".
 * WRONG is the address of one that computes wrongly. It computes in memory of this process.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

typedef struct card {
	char how[8], address[16];
	unsigned domain, bus, device, function;
} card;

static card cards[MOST];
static int count = -1;
static void *numbers;
static uint32_t items;
static card *chosen;

static void read_cards(void)
{
	char text[512];
	const char *all = getenv("CARDS");
	if (count >= 0)
		return;
	count = 0;
	snprintf(text, sizeof text, "%s", all ? all : "");
	for (char *save, *one = strtok_r(text, ",", &save); one && count < MOST; one = strtok_r(NULL, ",", &save)) {
		card *c = &cards[count++];
		sscanf(one, "%7s %15s", c->how, c->address);
		sscanf(c->address, "%x:%x:%x.%x", &c->domain, &c->bus, &c->device, &c->function);
	}
}

int32_t clGetPlatformIDs(uint32_t room, void **platforms, uint32_t *there)
{
	read_cards();
	if (!count)
		return -1001;
	for (uint32_t i = 0; i < room && (int)i < count; i++)
		platforms[i] = &cards[i];
	if (there)
		*there = count;
	return 0;
}

int32_t clGetDeviceIDs(void *platform, uint64_t type, uint32_t room, void **devices, uint32_t *there)
{
	if (type != 0xFFFFFFFF)
		return -31;
	if (strcmp(((card *)platform)->how, "empty") == 0)
		return -1;
	if (room)
		devices[0] = platform;
	if (there)
		*there = 1;
	return 0;
}

int32_t clGetDeviceInfo(void *device, uint32_t what, size_t room, void *into, size_t *size)
{
	card *c = device;
	uint32_t *numbers = into;
	(void)size;
	int khr = strcmp(c->how, "khr") == 0, nv = strcmp(c->how, "nv") == 0, amd = strcmp(c->how, "amd") == 0;
	if (what == 0x102B || what == 0x102D) {
		snprintf(into, room, what == 0x102B ? "played %s" : "1.2 played", c->how);
	} else if (what == 0x410F && khr && room == 16) {
		numbers[0] = c->domain, numbers[1] = c->bus, numbers[2] = c->device, numbers[3] = c->function;
	} else if (what == 0x4008 && nv && room == 4) {
		numbers[0] = c->bus;
	} else if (what == 0x4009 && nv && room == 4) {
		numbers[0] = c->device << 3 | c->function;
	} else if (what == 0x400A && nv && room == 4) {
		numbers[0] = c->domain;
	} else if (what == 0x4037 && amd && room == 24) {
		memset(into, 0, room);
		numbers[0] = 1;
		((uint8_t *)into)[21] = c->bus, ((uint8_t *)into)[22] = c->device, ((uint8_t *)into)[23] = c->function;
	} else {
		return -30;
	}
	return 0;
}

void *clCreateContext(const void *properties, uint32_t n, void **devices, void *notify, void *data, int32_t *status)
{
	chosen = devices[0];
	*status = n == 1 && !properties && !notify && !data ? 0 : -30;
	return (void *)0x1;
}

void *clCreateCommandQueue(void *context, void *device, uint64_t properties, int32_t *status)
{
	*status = context == (void *)0x1 && device == chosen && !properties ? 0 : -30;
	return (void *)0x2;
}

void *clCreateProgramWithSource(void *context, uint32_t n, const char **strings, const size_t *lengths, int32_t *status)
{
	*status = context == (void *)0x1 && n == 1 && !lengths && strstr(strings[0], "__kernel void work(") ? 0 : -30;
	return (void *)0x3;
}

int32_t clBuildProgram(void *program, uint32_t n, void **devices, const char *options, void *notify, void *data)
{
	if (program != (void *)0x3 || n != 1 || devices[0] != chosen || options || notify || data)
		return -30;
	return getenv("UNBUILT") ? -11 : 0;
}

int32_t clGetProgramBuildInfo(void *program, void *device, uint32_t what, size_t room, void *into, size_t *size)
{
	(void)program, (void)device, (void)size;
	snprintf(into, room, "error:\n  this is why\n");
	return what == 0x1183 ? 0 : -30;
}

void *clCreateKernel(void *program, const char *name, int32_t *status)
{
	*status = program == (void *)0x3 && strcmp(name, "work") == 0 ? 0 : -46;
	return (void *)0x4;
}

void *clCreateBuffer(void *context, uint64_t flags, size_t size, void *host, int32_t *status)
{
	*status = context == (void *)0x1 && flags == 1 && !host ? 0 : -30;
	return numbers = malloc(size);
}

int32_t clEnqueueWriteBuffer(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size, const void *from,
			     uint32_t n, const void *list, void *event)
{
	if (queue != (void *)0x2 || buffer != numbers || !blocking || offset || n || list || event)
		return -30;
	memcpy(buffer, from, size);
	return 0;
}

int32_t clSetKernelArg(void *kernel, uint32_t index, size_t size, const void *value)
{
	if (kernel != (void *)0x4)
		return -48;
	if (index == 1 && size == 4)
		items = *(const uint32_t *)value;
	else if (index != 0 || size != 8 || *(void *const *)value != numbers)
		return -50;
	return 0;
}

int32_t clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dimensions, const size_t *offset, const size_t *global,
			       const size_t *local, uint32_t n, const void *list, void *event)
{
	const char *wrong = getenv("WRONG");
	uint32_t *x = numbers;
	if (queue != (void *)0x2 || kernel != (void *)0x4 || dimensions != 1 || offset || local || n || list || event ||
	    global[0] < items)
		return -30;
	for (uint32_t i = 0; i < items; i++)
		for (int step = 0; step < 64; step++) {
			x[i] = x[i] * 1664525u + 1013904223u;
			x[i] ^= x[i] >> 16;
		}
	if (wrong && strcmp(wrong, chosen->address) == 0)
		x[5] = 0;
	return 0;
}

int32_t clFinish(void *queue) { return queue == (void *)0x2 ? 0 : -36; }

int32_t clEnqueueReadBuffer(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size, void *to,
			    uint32_t n, const void *list, void *event)
{
	if (queue != (void *)0x2 || buffer != numbers || !blocking || offset || n || list || event)
		return -30;
	memcpy(to, buffer, size);
	return 0;
}
