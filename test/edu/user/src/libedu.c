// SPDX-License-Identifier: MIT OR GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../module/edu.h"
#include "libedu.h"

/* The build defines EDU_USER_VERSION: the version of the module that the library belongs to. */

const char *edu_version(void)
{
	return EDU_USER_VERSION;
}

int edu_open(const char *path)
{
	struct edu_version v = { EDU_USER_VERSION };
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int saved;

	if (fd >= 0 && ioctl(fd, EDU_CHECK_VERSION, &v)) {
		saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

int edu_serial(int fd, char serial[32])
{
	struct edu_info info;

	if (ioctl(fd, EDU_INFO, &info))
		return -1;
	memcpy(serial, info.serial, sizeof(info.serial));
	return 0;
}

int edu_factorial(int fd, unsigned int n, unsigned int *result)
{
	struct edu_factorial f = { .n = n };

	if (ioctl(fd, EDU_FACTORIAL, &f))
		return -1;
	*result = f.result;
	return 0;
}
