// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * edu-smi lists the devices, as the tools of vendors do. It is linked with
 * libedu, so the loader must find the library.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libedu.h"

static void module_version(char *out, size_t n)
{
	FILE *f = fopen("/sys/module/edu/version", "r");

	snprintf(out, n, "not loaded");
	if (!f)
		return;
	if (fgets(out, n, f))
		out[strcspn(out, "\n")] = '\0';
	fclose(f);
}

int main(void)
{
	char module[32], serial[32];
	int failed = 0;
	glob_t g;
	size_t i;

	module_version(module, sizeof(module));
	printf("edu-smi %s, module %s\n", edu_version(), module);
	if (glob("/dev/edu[0-9]*", 0, NULL, &g)) {
		fprintf(stderr, "edu-smi: no device\n");
		return 9;
	}
	for (i = 0; i < g.gl_pathc; i++) {
		int fd = edu_open(g.gl_pathv[i]);

		if (fd < 0 || edu_serial(fd, serial)) {
			fprintf(stderr, "edu-smi: %s: %s\n", g.gl_pathv[i],
				errno == EPROTO ? "driver/library version mismatch" : strerror(errno));
			failed = 18;
		} else {
			printf("%s %s\n", g.gl_pathv[i], serial);
		}
		if (fd >= 0)
			close(fd);
	}
	return failed;
}
