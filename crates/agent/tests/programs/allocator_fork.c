// SPDX-License-Identifier: GPL-2.0
// Forks in a program with an allocator of its own that takes its lock before a fork and gives it
// back after, and registers that at its first use, as some allocators do. Whatever allocates in a
// handler that was registered earlier waits in the child for ever.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *old);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int begun;

static void lock(void)
{
	pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

static void in_child(void)
{
	pthread_mutex_init(&mutex, NULL);
}

static void begin(void)
{
	if (!__atomic_exchange_n(&begun, 1, __ATOMIC_SEQ_CST))
		pthread_atfork(lock, unlock, in_child);
}

void *malloc(size_t size)
{
	void *got;

	begin();
	lock();
	got = __libc_malloc(size);
	unlock();
	return got;
}

void *calloc(size_t count, size_t size)
{
	void *got;

	begin();
	lock();
	got = __libc_calloc(count, size);
	unlock();
	return got;
}

void *realloc(void *old, size_t size)
{
	void *got;

	begin();
	lock();
	got = __libc_realloc(old, size);
	unlock();
	return got;
}

void free(void *old)
{
	begin();
	lock();
	__libc_free(old);
	unlock();
}

int main(void)
{
	/* The agent has connected by then. */
	sleep(1);
	for (int round = 0; round < 3; round++) {
		pid_t child = fork();
		int status = 0;

		if (!child)
			_exit(0);
		for (int wait = 0; wait < 50 && waitpid(child, &status, WNOHANG) != child; wait++) {
			usleep(100 * 1000);
			if (wait == 49) {
				puts("the child hangs in fork()");
				kill(child, SIGKILL);
				waitpid(child, &status, 0);
				return 0;
			}
		}
		printf("the child exited: %d\n", WEXITSTATUS(status));
		fflush(stdout);
	}
	return 0;
}
