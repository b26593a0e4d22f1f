/*
 * Plays libnvidia-ml.so.1 from a script: the file "script" in the directory that this library was loaded from. The script is read
 * again at each call, so whoever writes it changes the machine; it is to be replaced by a rename. One fact a line, a key and its
 * value; "gpu.*." stands for every GPU that has no line of its own:
 *
 *	driver 580.82.07             the driver's version; "nvml" is the library's, "cuda" as 13000
 *	init 0                       what nvmlInit returns; "init hang" never does
 *	count 8
 *	gpu.0.pci 0000:3b:00.0
 *	gpu.*.temperature 41
 *	gpu.0.node /dev/edu0         a device node that is held open from nvmlInit on
 *	gpu.3.lost 1                 every call about it says that the GPU is lost
 *	gpu.3.hang 1                 no call about it returns; "lock": nor does any other
 *	gpu.2.mig 1                  it is in the mode of instances, gpu.2.mig.0 is the first:
 *	gpu.2.mig.0 1 0 1g.18gb MIG-uuid 18000    GPU instance, compute instance, profile, UUID, MiB
 *	event.1 3 8 79               the first event: of GPU 3, of type 8, with the number 79
 *	gpu.*.compute 0              what can be set; gpu.*.refuse.compute 3 is what setting it returns
 *
 *	gpu.0.process.0 4242 1024 50 0 25    a process that computes: PID, MiB, and how busy it keeps SMs, encoder and decoder; -1 MiB is
 *	                                     not known, and gpu.0.graphics.0 is one that draws
 *
 * What is set goes to the file "set" beside it, one line each time, and the last one counts: as in a driver, it outlives whoever set it.
 *
 * A value that is not there is not supported. Structures and numbers are those of the interface, as its documentation has them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15 };
enum { MAX_GPUS = 64, MAX_PARTS = 16 };

typedef struct handle { int gpu, part; } handle; /* part is -1 for the GPU itself */
typedef struct set { int gpu; unsigned long long types; int cursor; } set;

static handle gpus[MAX_GPUS], parts[MAX_GPUS][MAX_PARTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* beside opens a file in the directory of this library. */
static FILE *beside(const char *name, const char *mode)
{
	Dl_info self;
	char path[4096];

	if (!dladdr((void *)beside, &self) || !strrchr(self.dli_fname, '/'))
		return NULL;
	snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(self.dli_fname, '/') - self.dli_fname), self.dli_fname, name);
	return fopen(path, mode);
}

/* find finds the last line with a key in a file. It returns 0 when there is none. */
static int find(const char *file, const char *key, char *value, size_t size)
{
	char line[1024];
	size_t n = strlen(key);
	FILE *f = beside(file, "re");
	int found = 0;

	if (!f)
		return 0;
	while (fgets(line, sizeof line, f)) {
		if (strncmp(line, key, n) != 0 || line[n] != ' ')
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(value, size, "%s", line + n + 1);
		found = 1;
	}
	fclose(f);
	return found;
}

/* lookup finds a key in the script. It returns 0 when it is not there. */
static int lookup(const char *key, char *value, size_t size) { return find("script", key, value, size); }

/* of finds what is said of a GPU, or of every one. */
static int of(int gpu, const char *name, char *value, size_t size)
{
	char key[128];

	snprintf(key, sizeof key, "gpu.%d.%s", gpu, name);
	if (lookup(key, value, size))
		return 1;
	snprintf(key, sizeof key, "gpu.*.%s", name);
	return lookup(key, value, size);
}

/* enter is the beginning of every call about a GPU. */
static int enter(int gpu)
{
	char how[64];

	pthread_mutex_lock(&lock);
	while (of(gpu, "hang", how, sizeof how) && strcmp(how, "lock") == 0)
		usleep(10000);
	pthread_mutex_unlock(&lock);
	while (of(gpu, "hang", how, sizeof how) && strcmp(how, "1") == 0)
		usleep(10000);
	return of(gpu, "lost", how, sizeof how) && strcmp(how, "1") == 0 ? LOST : OK;
}

static int number(handle *d, const char *name, unsigned long long *out)
{
	char text[64];
	int ret = enter(d->gpu);

	if (ret != OK)
		return ret;
	if (d->part >= 0 || !of(d->gpu, name, text, sizeof text))
		return NOT_SUPPORTED;
	*out = strtoull(text, NULL, 0);
	return OK;
}

static int word(handle *d, const char *name, char *out, unsigned size)
{
	int ret = enter(d->gpu);

	if (ret != OK)
		return ret;
	return of(d->gpu, name, out, size) ? OK : NOT_SUPPORTED;
}

static int small(handle *d, const char *name, unsigned *out)
{
	unsigned long long n = 0;
	int ret = number(d, name, &n);

	if (ret == OK)
		*out = (unsigned)n;
	return ret;
}

/* instance reads the line of a part of a GPU. */
struct instance { unsigned gi, ci; char profile[64], uuid[96]; unsigned long long mib; };

static int remade[MAX_GPUS], mode[MAX_GPUS]; /* what was changed by whoever loaded the library */
static int made_instance(int gpu, int part, struct instance *out);

static int instance(int gpu, int part, struct instance *out)
{
	char key[32], text[256];

	if (remade[gpu])
		return made_instance(gpu, part, out);
	snprintf(key, sizeof key, "mig.%d", part);
	return of(gpu, key, text, sizeof text) &&
	       sscanf(text, "%u %u %63s %95s %llu", &out->gi, &out->ci, out->profile, out->uuid, &out->mib) == 5;
}

/* The library itself. */

int nvmlInit_v2(void)
{
	char text[64];

	while (lookup("init", text, sizeof text) && strcmp(text, "hang") == 0)
		usleep(10000);
	for (int i = 0; i < MAX_GPUS; i++) {
		char key[32], node[256];

		snprintf(key, sizeof key, "gpu.%d.node", i);
		if (lookup(key, node, sizeof node))
			(void)!open(node, O_RDWR | O_CLOEXEC); /* until the process ends */
	}
	return lookup("init", text, sizeof text) ? atoi(text) : OK;
}

int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int result)
{
	return result == 9 ? "Driver Not Loaded" : result == 18 ? "Driver/library version mismatch" : result == LOST ? "GPU is lost" : "an error";
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { return lookup("driver", out, size) ? OK : NOT_SUPPORTED; }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return lookup("nvml", out, size) ? OK : NOT_SUPPORTED; }

int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
	char text[64];

	if (!lookup("cuda", text, sizeof text))
		return NOT_SUPPORTED;
	*out = atoi(text);
	return OK;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
	char text[64];

	*out = lookup("count", text, sizeof text) ? (unsigned)atoi(text) : 0;
	return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, handle **out)
{
	if (i >= MAX_GPUS)
		return INVALID;
	gpus[i] = (handle){(int)i, -1};
	*out = &gpus[i];
	return OK;
}

/* Names. */

struct pci { char legacy[16]; unsigned domain, bus, device, id, sub; char text[32]; };

int nvmlDeviceGetPciInfo_v3(handle *d, struct pci *out)
{
	char text[64];

	/* It is known since the start, so that a lost GPU has it. */
	memset(out, 0, sizeof *out);
	if (!of(d->gpu, "pci", text, sizeof text) || sscanf(text, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3)
		return NOT_SUPPORTED;
	snprintf(out->text, sizeof out->text, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
	return OK;
}

int nvmlDeviceGetUUID(handle *d, char *out, unsigned size)
{
	struct instance p;

	if (d->part < 0)
		return word(d, "uuid", out, size);
	if (!instance(d->gpu, d->part, &p))
		return NOT_FOUND;
	snprintf(out, size, "%s", p.uuid);
	return OK;
}

int nvmlDeviceGetName(handle *d, char *out, unsigned size)
{
	struct instance p;
	int ret = word(d, "name", out, size);

	if (ret != OK || d->part < 0)
		return ret;
	if (!instance(d->gpu, d->part, &p))
		return NOT_FOUND;
	snprintf(out + strlen(out), size - strlen(out), " MIG %s", p.profile);
	return OK;
}

int nvmlDeviceGetSerial(handle *d, char *out, unsigned size) { return word(d, "serial", out, size); }
int nvmlDeviceGetMinorNumber(handle *d, unsigned *out) { return small(d, "minor", out); }

int nvmlDeviceGetCudaComputeCapability(handle *d, int *major, int *minor)
{
	char text[64];
	int ret = word(d, "capability", text, sizeof text);

	if (ret != OK)
		return ret;
	return sscanf(text, "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}

/* Numbers. */

int nvmlDeviceGetTemperature(handle *d, int sensor, unsigned *out) { return sensor == 0 ? small(d, "temperature", out) : INVALID; }
int nvmlDeviceGetPowerUsage(handle *d, unsigned *out) { return small(d, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(handle *d, unsigned *out) { return small(d, "power.limit", out); }
int nvmlDeviceGetTotalEnergyConsumption(handle *d, unsigned long long *out) { return number(d, "energy", out); }
int nvmlDeviceGetFanSpeed(handle *d, unsigned *out) { return small(d, "fan", out); }
int nvmlDeviceGetPcieReplayCounter(handle *d, unsigned *out) { return small(d, "replays", out); }

int nvmlDeviceGetClockInfo(handle *d, int type, unsigned *out)
{
	return small(d, type == 1 ? "clock.sm" : type == 2 ? "clock.memory" : "clock", out);
}

int nvmlDeviceGetTotalEccErrors(handle *d, int type, int counter, unsigned long long *out)
{
	(void)counter;
	return number(d, type == 0 ? "ecc.corrected" : "ecc.uncorrected", out);
}

struct utilisation { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(handle *d, struct utilisation *out)
{
	int ret = small(d, "busy", &out->gpu);

	return ret == OK ? small(d, "busy.memory", &out->memory) : ret;
}

int nvmlDeviceGetEncoderUtilization(handle *d, unsigned *out, unsigned *period)
{
	*period = 166666;
	return small(d, "busy.encoder", out);
}

int nvmlDeviceGetDecoderUtilization(handle *d, unsigned *out, unsigned *period)
{
	*period = 166666;
	return small(d, "busy.decoder", out);
}

/* Performance monitoring: a sample is what the script says then, in per cent. */
struct gpm_support { unsigned version, supported; };
struct gpm_metric { unsigned id, ret; double value; const char *texts[3]; };
struct gpm_query { unsigned version, count; double *before, *after; struct gpm_metric metrics[]; };

int nvmlGpmQueryDeviceSupport(handle *d, struct gpm_support *out)
{
	char text[64];
	int ret = word(d, "tensors", text, sizeof text);

	if (out->version != 1)
		return INVALID;
	out->supported = ret == OK;
	return ret == NOT_SUPPORTED ? OK : ret;
}

int nvmlGpmSampleAlloc(double **out) { return (*out = calloc(1, sizeof **out)) ? OK : INVALID; }
int nvmlGpmSampleFree(double *sample) { free(sample); return OK; }

int nvmlGpmSampleGet(handle *d, double *sample)
{
	char text[64];
	int ret = word(d, "tensors", text, sizeof text);

	if (ret == OK)
		*sample = strtod(text, NULL);
	return ret;
}

int nvmlGpmMetricsGet(struct gpm_query *q)
{
	if (q->version != 1 || !q->before || !q->after)
		return INVALID;
	for (unsigned i = 0; i < q->count; i++) {
		q->metrics[i].ret = q->metrics[i].id == 5 ? OK : NOT_SUPPORTED; /* NVML_GPM_METRIC_ANY_TENSOR_UTIL */
		q->metrics[i].value = *q->after;
	}
	return OK;
}

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct old_memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(handle *d, struct old_memory *out)
{
	int ret = number(d, "memory", &out->total);

	if (ret == OK)
		ret = number(d, "memory.used", &out->used);
	if (ret == OK)
		out->free = out->total - out->used;
	return ret;
}

int nvmlDeviceGetMemoryInfo_v2(handle *d, struct memory *out)
{
	struct old_memory m = {0};
	int ret;

	if (out->version != (sizeof *out | 2u << 24))
		return 25; /* argument version mismatch */
	ret = nvmlDeviceGetMemoryInfo(d, &m);
	out->total = m.total;
	out->used = m.used;
	out->free = m.free;
	return ret;
}

int nvmlDeviceGetRemappedRows(handle *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	char text[64];
	int ret = word(d, "rows", text, sizeof text); /* "0 1 0 0" */

	if (ret != OK)
		return ret;
	return sscanf(text, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4 ? OK : NOT_SUPPORTED;
}

struct violation { unsigned long long reference, violation; };

int nvmlDeviceGetViolationStatus(handle *d, int policy, struct violation *out)
{
	return number(d, policy == 1 ? "throttled.heat" : "throttled.power", &out->violation);
}

struct field { unsigned id, scope; long long at, took; int type, result; union { unsigned u; unsigned long long ull; } value; };

int nvmlDeviceGetFieldValues(handle *d, int count, struct field *values)
{
	char name[32];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof name, "field.%u", values[i].id);
		values[i].type = 3; /* unsigned long long */
		values[i].result = number(d, name, &values[i].value.ull);
		if (values[i].result == LOST)
			return LOST;
	}
	return OK;
}

/* Processes. */

struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };
struct process_sample { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; };

static int process(handle *d, const char *kind, int i, struct process *p, struct process_sample *s)
{
	char key[32], text[128];
	long long mib = 0;

	snprintf(key, sizeof key, "%s.%d", kind, i);
	if (!of(d->gpu, key, text, sizeof text) ||
	    sscanf(text, "%u %lld %u %u %u", &p->pid, &mib, &s->sm, &s->encoder, &s->decoder) != 5)
		return 0;
	p->memory = mib < 0 ? ~0ULL : (unsigned long long)mib << 20;
	p->gi = p->ci = ~0u;
	s->pid = p->pid;
	return 1;
}

static int processes(handle *d, const char *kind, unsigned *count, struct process *out)
{
	struct process_sample s;
	struct process p;
	unsigned n = 0;
	int ret = enter(d->gpu);

	if (ret != OK)
		return ret;
	for (; process(d, kind, (int)n, &p, &s); n++)
		if (n < *count)
			out[n] = p;
	ret = n > *count ? 7 : OK; /* insufficient size */
	*count = n;
	return ret;
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle *d, unsigned *count, struct process *out)
{
	return processes(d, "process", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(handle *d, unsigned *count, struct process *out)
{
	return processes(d, "graphics", count, out);
}

int nvmlDeviceGetProcessUtilization(handle *d, struct process_sample *out, unsigned *count, unsigned long long since)
{
	struct process_sample s = {0};
	struct process p;
	struct timespec now;
	unsigned n = 0;
	int ret = enter(d->gpu);

	if (ret != OK)
		return ret;
	clock_gettime(CLOCK_REALTIME, &now);
	s.at = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
	for (; process(d, "process", (int)n, &p, &s); n++)
		if (out && n < *count)
			out[n] = s;
	if (n == 0 || s.at <= since)
		return NOT_FOUND;
	ret = !out || n > *count ? 7 : OK;
	*count = n;
	return ret;
}

/* Links: "link.0 switch", "link.1 gpu 0000:5d:00.0", "link.2 off". */

static int link_of(handle *d, unsigned link, char *text, size_t size)
{
	char name[32];
	int ret = enter(d->gpu);

	if (ret != OK)
		return ret;
	snprintf(name, sizeof name, "link.%u", link);
	return of(d->gpu, name, text, size) ? OK : INVALID;
}

int nvmlDeviceGetNvLinkState(handle *d, unsigned link, int *out)
{
	char text[64];
	int ret = link_of(d, link, text, sizeof text);

	*out = ret == OK && strcmp(text, "off") != 0;
	return ret;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(handle *d, unsigned link, int *out)
{
	char text[64];
	int ret = link_of(d, link, text, sizeof text);

	if (ret == OK)
		*out = strncmp(text, "switch", 6) == 0 ? 2 : 0;
	return ret;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle *d, unsigned link, struct pci *out)
{
	char text[64];
	int ret = link_of(d, link, text, sizeof text);

	memset(out, 0, sizeof *out);
	if (ret != OK)
		return ret;
	return sscanf(text, "gpu %x:%x:%x", &out->domain, &out->bus, &out->device) == 3 ? OK : NOT_SUPPORTED;
}

/* Instances. */

int nvmlDeviceGetMigMode(handle *d, unsigned *now, unsigned *pending)
{
	int ret = small(d, "mig", now);

	if (ret == OK && remade[d->gpu])
		*now = (unsigned)mode[d->gpu];
	*pending = *now;
	return ret;
}

int nvmlDeviceGetMaxMigDeviceCount(handle *d, unsigned *out)
{
	(void)d;
	*out = 7;
	return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle *d, unsigned i, handle **out)
{
	struct instance p;
	int ret = enter(d->gpu);

	if (ret != OK)
		return ret;
	if (i >= MAX_PARTS || !instance(d->gpu, (int)i, &p))
		return NOT_FOUND;
	parts[d->gpu][i] = (handle){d->gpu, (int)i};
	*out = &parts[d->gpu][i];
	return OK;
}

int nvmlDeviceGetGpuInstanceId(handle *d, unsigned *out)
{
	struct instance p;

	if (!instance(d->gpu, d->part, &p))
		return NOT_FOUND;
	*out = p.gi;
	return OK;
}

int nvmlDeviceGetComputeInstanceId(handle *d, unsigned *out)
{
	struct instance p;

	if (!instance(d->gpu, d->part, &p))
		return NOT_FOUND;
	*out = p.ci;
	return OK;
}

struct attributes { unsigned sm, copy, decoder, encoder, jpeg, ofa, gi, ci; unsigned long long mib; };

int nvmlDeviceGetAttributes_v2(handle *d, struct attributes *out)
{
	struct instance p;

	memset(out, 0, sizeof *out);
	if (!instance(d->gpu, d->part, &p))
		return NOT_FOUND;
	out->gi = out->ci = (unsigned)atoi(p.profile);
	out->sm = 16 * out->gi;
	out->copy = out->gi;
	out->mib = p.mib;
	return OK;
}

/* Events. */

int nvmlDeviceGetSupportedEventTypes(handle *d, unsigned long long *out)
{
	int ret = enter(d->gpu);

	*out = 0xff9f;
	return ret;
}

int nvmlEventSetCreate(set **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? OK : 20;
}

int nvmlEventSetFree(set *s)
{
	free(s);
	return OK;
}

static int event(int n, int *gpu, unsigned long long *type, unsigned long long *data)
{
	char key[32], text[128];

	snprintf(key, sizeof key, "event.%d", n);
	return lookup(key, text, sizeof text) && sscanf(text, "%d %llu %llu", gpu, type, data) == 3;
}

int nvmlDeviceRegisterEvents(handle *d, unsigned long long types, set *s)
{
	int gpu, ret = enter(d->gpu);
	unsigned long long type, data;

	if (ret != OK)
		return ret;
	s->gpu = d->gpu;
	s->types = types;
	while (event(s->cursor + 1, &gpu, &type, &data)) /* what was before is not told */
		s->cursor++;
	return OK;
}

struct told { handle *device; unsigned long long type, data; unsigned gi, ci; };

int nvmlEventSetWait_v2(set *s, struct told *out, unsigned milliseconds)
{
	int gpu;
	unsigned long long type, data;

	for (unsigned waited = 0; waited <= milliseconds; waited += 5) {
		if (enter(s->gpu) == LOST && !event(s->cursor + 1, &gpu, &type, &data))
			return LOST;
		while (event(s->cursor + 1, &gpu, &type, &data)) {
			s->cursor++;
			if (gpu == s->gpu && (type & s->types)) {
				*out = (struct told){&gpus[gpu], type, data, 0xffffffff, 0xffffffff};
				return OK;
			}
		}
		usleep(5000);
	}
	return TIMEOUT;
}

/*
 * Making and destroying instances. "profile.0 1g.18gb 1 7 18000" says which there can be: name, slices, how many, MiB. What was
 * made is this process's until it ends; "gpu.2.busy 1" would refuse it.
 */

struct made { int used, id, profile, compute; };
static struct made made[MAX_GPUS][MAX_PARTS];

struct profile { char name[64]; unsigned slices, most; unsigned long long mib; };

static int profile_of(unsigned i, struct profile *out)
{
	char key[32], text[128];

	snprintf(key, sizeof key, "profile.%u", i);
	return lookup(key, text, sizeof text) && sscanf(text, "%63s %u %u %llu", out->name, &out->slices, &out->most, &out->mib) == 4;
}

struct profile_info { unsigned version, id, slices, most, sm, copy, decoder, encoder, jpeg, ofa; unsigned long long mib; char name[96]; unsigned caps; };

int nvmlDeviceGetGpuInstanceProfileInfoV(handle *d, unsigned i, struct profile_info *out)
{
	struct profile p;

	(void)d;
	if (out->version != (sizeof *out | 3u << 24))
		return 25;
	if (!profile_of(i, &p))
		return NOT_SUPPORTED;
	out->id = 100 + i;
	out->slices = p.slices;
	out->most = p.most;
	out->mib = p.mib;
	snprintf(out->name, sizeof out->name, "MIG %s", p.name);
	return OK;
}

/* The rest of the library asks "instance" and small(d, "mig"), which look here first. */

static int made_instance(int gpu, int part, struct instance *out)
{
	struct profile p;
	struct made *m = &made[gpu][part];

	if (!m->used || !m->compute || !profile_of((unsigned)m->profile, &p))
		return 0;
	out->gi = (unsigned)m->id;
	out->ci = 0;
	out->mib = p.mib;
	snprintf(out->profile, sizeof out->profile, "%s", p.name);
	snprintf(out->uuid, sizeof out->uuid, "MIG-made-%d-%d", gpu, m->id);
	return 1;
}

static int busy(handle *d)
{
	char text[16];

	return of(d->gpu, "busy.instances", text, sizeof text);
}

int nvmlDeviceSetMigMode(handle *d, unsigned to, int *status)
{
	int ret = enter(d->gpu);

	if (ret != OK)
		return ret;
	*status = OK;
	if (!remade[d->gpu])
		memset(made[d->gpu], 0, sizeof made[d->gpu]);
	remade[d->gpu] = 1;
	mode[d->gpu] = (int)to;
	return OK;
}

int nvmlDeviceGetGpuInstances(handle *d, unsigned profile, struct made **out, unsigned *count)
{
	*count = 0;
	for (int i = 0; remade[d->gpu] && i < MAX_PARTS; i++)
		if (made[d->gpu][i].used && made[d->gpu][i].profile == (int)profile - 100)
			out[(*count)++] = &made[d->gpu][i];
	return OK;
}

int nvmlDeviceCreateGpuInstance(handle *d, unsigned profile, struct made **out)
{
	struct profile p;
	unsigned taken = 0;
	int free_place = -1;

	if (!profile_of(profile - 100, &p))
		return INVALID;
	for (int i = MAX_PARTS - 1; i >= 0; i--) {
		struct profile other;

		if (!made[d->gpu][i].used)
			free_place = i;
		else if (profile_of((unsigned)made[d->gpu][i].profile, &other))
			taken += other.slices;
	}
	if (free_place < 0 || taken + p.slices > 7)
		return 23; /* insufficient resources */
	made[d->gpu][free_place] = (struct made){1, free_place + 1, (int)profile - 100, 0};
	*out = &made[d->gpu][free_place];
	return OK;
}

int nvmlGpuInstanceDestroy(struct made *m)
{
	handle d = {(int)((m - &made[0][0]) / MAX_PARTS), -1};

	if (busy(&d) || m->compute)
		return 19; /* in use */
	m->used = 0;
	return OK;
}

struct compute_info { unsigned id, slices, most, sm, copy, decoder, encoder, jpeg, ofa; };

int nvmlGpuInstanceGetComputeInstanceProfileInfo(struct made *m, unsigned i, unsigned engines, struct compute_info *out)
{
	struct profile p;

	(void)engines;
	memset(out, 0, sizeof *out);
	if (i != 0 || !profile_of((unsigned)m->profile, &p))
		return NOT_SUPPORTED;
	out->slices = p.slices;
	out->most = 1;
	return OK;
}

int nvmlGpuInstanceGetComputeInstances(struct made *m, unsigned profile, struct made **out, unsigned *count)
{
	(void)profile;
	*count = (unsigned)m->compute;
	if (m->compute)
		*out = m;
	return OK;
}

int nvmlGpuInstanceCreateComputeInstance(struct made *m, unsigned profile, struct made **out)
{
	(void)profile;
	m->compute = 1;
	*out = m;
	return OK;
}

int nvmlComputeInstanceDestroy(struct made *m)
{
	m->compute = 0;
	return OK;
}

/* Settings. */

/* setting reads what can be set: what was set last, or what the script says. */
static int setting(handle *d, const char *name, unsigned *out)
{
	char key[64], text[64];
	int ret = small(d, name, out);

	snprintf(key, sizeof key, "gpu.%d.%s", d->gpu, name);
	if (ret == OK && find("set", key, text, sizeof text))
		*out = (unsigned)strtoull(text, NULL, 0);
	return ret;
}

/* set sets it, if the GPU has it. */
static int set_to(handle *d, const char *name, unsigned to)
{
	char refuse[64];
	unsigned now, code;
	int ret = small(d, name, &now);
	FILE *f;

	snprintf(refuse, sizeof refuse, "refuse.%s", name);
	if (ret != OK || small(d, refuse, &code) == OK)
		return ret != OK ? ret : (int)code;
	f = beside("set", "ae");
	if (!f)
		return INVALID;
	fprintf(f, "gpu.%d.%s %u\n", d->gpu, name, to);
	fclose(f);
	return OK;
}

int nvmlDeviceGetPersistenceMode(handle *d, unsigned *out) { return setting(d, "persistence", out); }
int nvmlDeviceSetPersistenceMode(handle *d, unsigned to) { return set_to(d, "persistence", to); }
int nvmlDeviceGetComputeMode(handle *d, unsigned *out) { return setting(d, "compute", out); }
int nvmlDeviceSetComputeMode(handle *d, unsigned to) { return set_to(d, "compute", to); }
int nvmlDeviceGetPowerManagementLimit(handle *d, unsigned *out) { return setting(d, "limit", out); }

int nvmlDeviceGetPowerManagementLimitConstraints(handle *d, unsigned *least, unsigned *most)
{
	char text[64];
	int ret = word(d, "limit.range", text, sizeof text);

	if (ret != OK)
		return ret;
	return sscanf(text, "%u %u", least, most) == 2 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceSetPowerManagementLimit(handle *d, unsigned to)
{
	unsigned least, most;

	if (nvmlDeviceGetPowerManagementLimitConstraints(d, &least, &most) == OK && (to < least || to > most))
		return INVALID;
	return set_to(d, "limit", to);
}

/* A mode that is set is pending: "ecc" is what is so now. */
int nvmlDeviceGetEccMode(handle *d, unsigned *now, unsigned *pending)
{
	int ret = small(d, "ecc", now);

	return ret == OK ? setting(d, "ecc", pending) : ret;
}

int nvmlDeviceSetEccMode(handle *d, unsigned to) { return set_to(d, "ecc", to); }
int nvmlDeviceGetMaxClockInfo(handle *d, int type, unsigned *out) { return type == 0 ? small(d, "clock.max", out) : INVALID; }

int nvmlDeviceSetGpuLockedClocks(handle *d, unsigned least, unsigned most)
{
	return least > most ? INVALID : set_to(d, "clock.max", most);
}

int nvmlDeviceResetGpuLockedClocks(handle *d) { return set_to(d, "clock.max", 0); }
