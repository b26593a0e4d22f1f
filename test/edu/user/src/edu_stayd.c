// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * edu-stayd keeps every device open, as the persistence daemons of vendors do,
 * and says by a file in its runtime directory that it is ready. It needs
 * libedu, of the module's version. The argument "broken" makes it fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libedu.h"

int main(int argc, char **argv)
{
	const char *dir = getenv("RUNTIME_DIRECTORY");
	char name[PATH_MAX];
	FILE *ready;
	glob_t g;
	size_t i;

	if (argc > 1 && !strcmp(argv[1], "broken")) {
		fprintf(stderr, "edu-stayd: told to be broken\n");
		return 3;
	}
	if (!glob("/dev/edu[0-9]*", 0, NULL, &g)) {
		for (i = 0; i < g.gl_pathc; i++) {
			if (edu_open(g.gl_pathv[i]) < 0) {
				fprintf(stderr, "edu-stayd: %s: %s\n", g.gl_pathv[i], strerror(errno));
				return 1;
			}
		}
	}
	snprintf(name, sizeof(name), "%s/ready", dir ? dir : "/run");
	ready = fopen(name, "w");
	if (!ready) {
		perror(name);
		return 1;
	}
	fprintf(ready, "%s\n", edu_version());
	fclose(ready);
	for (;;)
		pause();
}
