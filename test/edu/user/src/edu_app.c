// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * edu-app is a workload: it loads libedu by its soname, as programs of people
 * load a vendor's library, and computes 10! on each device that it sees. With
 * an argument it then waits, and writes the version of the library that it
 * finds now once a second, until it is ended: a container that runs must
 * never find another one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *(*version)(void);
static int (*device_open)(const char *path);
static int (*factorial)(int fd, unsigned int n, unsigned int *result);

static void *load(void)
{
	void *lib = dlopen("libedu.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		fprintf(stderr, "edu-app: %s\n", dlerror());
		return NULL;
	}
	version = (const char *(*)(void))dlsym(lib, "edu_version");
	device_open = (int (*)(const char *))dlsym(lib, "edu_open");
	factorial = (int (*)(int, unsigned int, unsigned int *))dlsym(lib, "edu_factorial");
	return lib;
}

static int compute(const char *path)
{
	unsigned int result = 0;
	int fd = device_open(path);

	if (fd < 0 || factorial(fd, 10, &result)) {
		fprintf(stderr, "edu-app: %s: %s\n", path, strerror(errno));
		return 1;
	}
	close(fd);
	printf("edu-app: library %s: %s: 10! = %u\n", version(), path, result);
	return result != 3628800;
}

int main(int argc, char **argv)
{
	void *lib = load();
	int failed = 0;
	glob_t g;
	size_t i;

	(void)argv;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!lib)
		return 2;
	if (glob("/dev/edu[0-9]*", 0, NULL, &g)) {
		fprintf(stderr, "edu-app: no device\n");
		return 3;
	}
	for (i = 0; i < g.gl_pathc; i++)
		failed |= compute(g.gl_pathv[i]);
	while (argc > 1 && !failed) {
		sleep(1);
		dlclose(lib);
		lib = load();
		if (!lib)
			return 2;
		printf("edu-app: library %s\n", version());
	}
	return failed;
}
