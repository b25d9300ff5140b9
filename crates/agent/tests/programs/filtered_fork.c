// SPDX-License-Identifier: GPL-2.0
// Forks under a filter of system calls that kills for what a new thread needs. The filter is this
// thread's alone: it was not set with SECCOMP_FILTER_FLAG_TSYNC. With an argument it runs itself
// under a filter that kills for prctl(), too.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#define ANSWER(call, action) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), \
	BPF_STMT(BPF_RET | BPF_K, action)

static int filter(unsigned int of_prctl)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ANSWER(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS),
		ANSWER(SYS_prctl, of_prctl),
		/* Asked by the agent's thread. */
		ANSWER(SYS_clock_nanosleep, SECCOMP_RET_KILL_PROCESS),
		ANSWER(SYS_nanosleep, SECCOMP_RET_KILL_PROCESS),
		ANSWER(SYS_socket, SECCOMP_RET_KILL_PROCESS),
		/* A new thread. */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(rules) / sizeof(*rules), rules };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **words)
{
	int status;
	pid_t child;

	if (count > 1 && !strcmp(words[1], "filtered")) {
		puts("the program lives");
		return 0;
	}
	/* The agent has connected by then. */
	sleep(1);
	if (count > 1) {
		if (filter(SECCOMP_RET_KILL_PROCESS))
			return 1;
		execl("/proc/self/exe", words[0], "filtered", NULL);
		return 1;
	}
	if (filter(SECCOMP_RET_ALLOW))
		return 1;
	child = fork();
	if (!child) {
		(void)!write(1, "the child lives\n", 16);
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("the child was killed by signal %d\n", WTERMSIG(status));
	else
		printf("the child exited: %d\n", WEXITSTATUS(status));
	return 0;
}
