// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated drives' driver, host half: files and memory of the host.
 *
 * This half is compiled against the host's libc and runs inside the kernel's
 * process, on kernel stacks. Every call is synchronous and costs no virtual
 * time, so what the host does meanwhile cannot show inside the machine.
 *
 * Memory map of the process (x86-64). The kernel's binary, guest memory and
 * vmalloc area start at 0x60000000 and need about twice mem=; KASAN's shadow
 * is 0x100000000000-0x1fffffffffff; libc and stacks are just below
 * 0x7fffffffffff. Guest programs live in processes of their own. The drives
 * take what is free between:
 *
 *	0x300000000000	the models' memory, handed out upwards
 *	0x400000000000	the drive files, read-only, 1 TiB for each: that of
 *			drive N at 0x4N0000000000, of the last one to
 *			0x4fffffffffff
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>		/* rename() */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "shingle.h"
#include "shingle_drive_abi.h"

#define RESERVE_ADDRESS	((char *)0x300000000000)
#define FILE_ADDRESS	((char *)0x400000000000)
#define FILE_ROOM	(1LL << 40)
#define HOST_PAGE	4096ULL

unsigned long long shingle_reserve_refused;

static unsigned long long reserve_bytes, reserve_used;

/*
 * These mappings are kept from the processes of the guest: each is a clone of
 * this one, and would otherwise copy the page tables of gigabytes and turn
 * every later write of the model into a copy-on-write fault.
 */
static int map_fixed(void *address, unsigned long long bytes, int prot,
		     int flags, int fd)
{
	void *p = mmap(address, bytes, prot,
		       flags | MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (p != address) {	/* a host older than MAP_FIXED_NOREPLACE */
		munmap(p, bytes);
		return -EEXIST;
	}
	if (madvise(p, bytes, MADV_DONTFORK) < 0)
		return -errno;
	return 0;
}

int shingle_reserve(unsigned long long bytes)
{
	int err;

	bytes = (bytes + HOST_PAGE - 1) & ~(HOST_PAGE - 1);
	err = map_fixed(RESERVE_ADDRESS, bytes, PROT_READ | PROT_WRITE,
			MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (!err)
		reserve_bytes = bytes;
	return err;
}

/* Called by the model: zeroed, page-aligned, never given back. */
void *shingle_host_alloc_chunk(unsigned long long bytes)
{
	char *chunk = RESERVE_ADDRESS + reserve_used;

	if (bytes > reserve_bytes - reserve_used) {
		shingle_reserve_refused = bytes;
		return NULL;
	}
	reserve_used += (bytes + HOST_PAGE - 1) & ~(HOST_PAGE - 1);
	if (reserve_used > reserve_bytes)
		reserve_used = reserve_bytes;
	return chunk;
}

int shingle_map_drive(unsigned int number, const char *path, const void **map,
		      unsigned long long *len)
{
	char *address = FILE_ADDRESS + number * FILE_ROOM;
	struct stat st;
	int fd, err;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) < 0 ? -errno : 0;
	if (!err && !S_ISREG(st.st_mode))
		err = -ENOTBLK;
	if (!err && st.st_size == 0)
		err = -ENODATA;
	if (!err && st.st_size > FILE_ROOM)
		err = -EFBIG;
	if (!err)
		err = map_fixed(address, st.st_size, PROT_READ, 0, fd);
	close(fd);
	if (err)
		return err;
	*map = address;
	*len = st.st_size;
	return 0;
}

int shingle_rename_directory(char *path)
{
	static const char fixed[] = "/dev/fd/64";
	int fd;

	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (strlen(path) < strlen(fixed) || fcntl(fd, F_DUPFD, 64) != 64) {
		close(fd);
		return 0;
	}
	close(fd);
	memcpy(path, fixed, sizeof(fixed));
	return 0;
}

/* On an error, what was written is of no use to anyone. */
static int write_all(int fd, const void *data, unsigned long long len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len < (1 << 30) ? len : (1 << 30));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= n;
	}
	return 0;
}

int shingle_read_file(const char *path, void *buf, unsigned int len)
{
	unsigned int have = 0;
	ssize_t n = 1;
	int fd, err = 0;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (!err && n && have < len) {
		n = read(fd, (char *)buf + have, len - have);
		if (n > 0)
			have += n;
		else if (n < 0 && errno != EINTR)
			err = -errno;
	}
	close(fd);
	if (!err && have == len)
		err = -EFBIG;
	return err ?: (int)have;
}

/* Of each drive; 0: it has none. */
static int trace_fd[SHINGLE_DRIVES];

int shingle_trace_open(unsigned int number, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	trace_fd[number] = fd;
	return 0;
}

int shingle_trace_write(unsigned int number, const void *data,
			unsigned int len)
{
	if (!trace_fd[number])
		return -EBADF;
	return write_all(trace_fd[number], data, len);
}

/*
 * Saving. The model hands over many small pieces; they are gathered here. The
 * file has no name until it is complete, where the host's file system can do
 * that; elsewhere it is called <name>.part and removed on any error.
 */
static int save_fd = -1;
static int save_has_name;
static size_t save_fill;
static char save_buffer[1 << 20];
static char save_part[PATH_MAX];
static char save_link[sizeof("/proc/self/fd/2147483647")];

static int directory_of(const char *path, char *directory)
{
	size_t len = strlen(path);

	if (len + sizeof(".part") > PATH_MAX)
		return -ENAMETOOLONG;
	while (len > 0 && path[len - 1] != '/')
		len--;
	if (len == 0) {
		memcpy(directory, ".", 2);
		return 0;
	}
	memcpy(directory, path, len);
	directory[len] = '\0';
	return 0;
}

static void part_of(const char *path)
{
	size_t len = strlen(path);

	memcpy(save_part, path, len);
	memcpy(save_part + len, ".part", sizeof(".part"));
}

static void link_of(int fd)
{
	static const char folder[] = "/proc/self/fd/";
	char digits[12], *out = save_link + sizeof(folder) - 1;
	int n = 0;

	do {
		digits[n++] = '0' + fd % 10;
		fd /= 10;
	} while (fd > 0);
	memcpy(save_link, folder, sizeof(folder));
	while (n > 0)
		*out++ = digits[--n];
	*out = '\0';
}

int shingle_save_begin(const char *path)
{
	int err = directory_of(path, save_part);

	if (err)
		return err;
	save_fill = 0;
	save_has_name = 0;
	save_fd = open(save_part, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
	if (save_fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
		return -errno;
	part_of(path);
	save_has_name = 1;
	save_fd = open(save_part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
		       0644);
	return save_fd < 0 ? -errno : 0;
}

static int save_flush(void)
{
	int err = write_all(save_fd, save_buffer, save_fill);

	save_fill = 0;
	return err;
}

int shingle_save_write(void *ctx, const void *data, unsigned long long len)
{
	int err;

	if (len > sizeof(save_buffer) - save_fill) {
		err = save_flush();
		if (err)
			return err;
	}
	if (len > sizeof(save_buffer))
		return write_all(save_fd, data, len);
	memcpy(save_buffer + save_fill, data, len);
	save_fill += len;
	return 0;
}

int shingle_save_end(const char *path, int err)
{
	if (!err)
		err = save_flush();
	if (!err && !save_has_name) {
		part_of(path);
		link_of(save_fd);
		unlink(save_part);	/* left by a run that was killed */
		if (linkat(AT_FDCWD, save_link, AT_FDCWD, save_part,
			   AT_SYMLINK_FOLLOW) < 0)
			err = -errno;
		else
			save_has_name = 1;
	}
	if (close(save_fd) < 0 && !err)
		err = -errno;
	save_fd = -1;
	if (!err && rename(save_part, path) < 0)
		err = -errno;
	if (err && save_has_name)
		unlink(save_part);
	return err;
}

void shingle_complain(const char *text, unsigned int len)
{
	write_all(STDERR_FILENO, text, len);
}

/*
 * The guest's processes are children of this one, stopped under ptrace. They
 * would die with it (PR_SET_PDEATHSIG, PTRACE_O_EXITKILL); doing it here and
 * waiting means that none is left when the lab sees this process end.
 */
static void kill_children(void)
{
	static char list[65536];
	ssize_t len, i;
	pid_t pid = 0;
	int fd, status;

	fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	len = read(fd, list, sizeof(list));
	close(fd);
	for (i = 0; i < len; i++) {
		if (list[i] >= '0' && list[i] <= '9') {
			pid = pid * 10 + (list[i] - '0');
		} else if (pid > 0) {
			kill(pid, SIGKILL);
			while (waitpid(pid, &status, __WALL) == pid &&
			       WIFSTOPPED(status))
				;
			pid = 0;
		}
	}
}

void shingle_exit(int status)
{
	kill_children();
	/* All threads, and none of libc's exit handlers on this stack. */
	for (;;)
		syscall(SYS_exit_group, status);
}
