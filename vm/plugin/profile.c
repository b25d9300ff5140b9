// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin of QEMU that counts a guest's instructions by task and by block of
 * code, in windows that a program in the guest opens and closes.
 *
 *   -plugin FILE,out=FILE[,caches=on][,program=FILE]...
 *
 * Problem: which task has the processor is in registers and memory, and this
 * version of the interface shows neither.
 * Approach: it shows the address of an access. Linux changes tasks in one
 * place (__switch_to_asm), by loading the stack pointer from the new task's
 * structure: "mov rsp, [rsi + N]", an instruction that is nowhere else in code
 * that runs. Its address names the task. What belongs to whom is in tasks.c, whose
 * code it is in program.c, the sums are in counts.c. With caches=on, which makes
 * the guest many times slower, caches.c says where accesses to data end.
 * Output, a line each: "program NUMBER FILE" at the start; for each window
 * "window NUMBER", lines of tasks_write(), counts_write() and caches_write(), "end NUMBER". A
 * window is written when it is closed. Windows are numbered as they are opened.
 * Limits: one processor; Linux on x86-64.
 */
#include <stdlib.h>
#include <string.h>

#include "caches.h"
#include "counts.h"
#include "markers.h"
#include "qemu_api.h"
#include "tasks.h"

/* Longest code of one block that is compared. */
#define LONGEST 8192

/* Longest instruction of x86-64. */
#define INSN_SIZE 15

int qemu_plugin_version = OLD_VERSION;

static struct program programs[MAX_PROGRAMS];
static unsigned int program_count;
static FILE *out;
static unsigned int windows;
static bool is_open;
static bool has_caches;
static bool has_copies;

/* QEMU reads the version after it has loaded the plugin. */
static __attribute__((constructor)) void choose_version(void)
{
	if (qemu_plugin_scoreboard_new)
		qemu_plugin_version = NEW_VERSION;
}

static void on_entered(unsigned int cpu, void *data)
{
	(void)cpu;
	counts_entered((uint32_t)(uintptr_t)data);
}

static void on_begin(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	counts_clear();
	caches_clear();
	tasks_forget();
	is_open = true;
	windows++;
}

static void on_end(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	if (!is_open)
		return;
	tasks_cut();
	fprintf(out, "window %u\n", windows - 1);
	tasks_write(out);
	counts_write(out);
	caches_write(out);
	fprintf(out, "end %u\n", windows - 1);
	if (fflush(out)) {
		perror("uksm profile: cannot write");
		exit(1);
	}
	counts_clear();
	caches_clear();
	is_open = false;
}

static void on_switch(unsigned int cpu, qemu_plugin_meminfo_t info,
		      uint64_t address, void *data)
{
	(void)cpu;
	(void)info;
	(void)data;
	tasks_switched(address);
}

/* The data says whether the kernel's code does it. */
static void on_access(unsigned int cpu, qemu_plugin_meminfo_t info,
		      uint64_t address, void *data)
{
	struct qemu_plugin_hwaddr *place;

	(void)cpu;
	if (!is_open)
		return;
	place = qemu_plugin_get_hwaddr(info, address);
	if (place && !qemu_plugin_hwaddr_is_io(place))
		caches_accessed(address, qemu_plugin_hwaddr_phys_addr(place),
				data);
}

/* "mov rsp, [rsi + 32 bits]" */
static bool is_switch(const uint8_t *bytes, size_t size)
{
	static const uint8_t opcode[] = { 0x48, 0x8b, 0xa6 };

	return size == 7 && !memcmp(bytes, opcode, sizeof(opcode));
}

static bool is_mark(const uint8_t *bytes, size_t size, uint32_t mark)
{
	static const uint8_t opcode[] = MARK_OPCODE;
	uint32_t has;

	if (size != MARK_LENGTH || memcmp(bytes, opcode, sizeof(opcode)))
		return false;
	memcpy(&has, bytes + sizeof(opcode), sizeof(has));
	return has == mark;
}

/* What the block is: of the kernel, of a program, or of neither. */
static struct block identify(uint64_t address, uint32_t length,
			     const uint8_t *bytes, size_t size)
{
	struct block block = { address, length, PLACE_USER };
	struct code code = { address, bytes, size };
	unsigned int number;

	if (address >> 63) {
		block.place = PLACE_KERNEL;
		return block;
	}
	for (number = 0; number < program_count; number++) {
		uint64_t within;

		if (program_has(&programs[number], &code, &within)) {
			block.address = within;
			block.place = number;
			break;
		}
	}
	return block;
}

/* The code of an instruction: QEMU's own memory, or a copy. */
static const uint8_t *data_of(const struct qemu_plugin_insn *insn,
			      uint8_t copy[INSN_SIZE])
{
	copy_data_t copy_data;

	if (!has_copies)
		return qemu_plugin_insn_data(insn);
	copy_data = (copy_data_t)(void (*)(void))qemu_plugin_insn_data;
	copy_data(insn, copy, INSN_SIZE);
	return copy;
}

static void on_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t length = qemu_plugin_tb_n_insns(tb);
	bool is_kernel = address >> 63;
	uint8_t code[LONGEST];
	size_t size = 0, i;
	uint32_t number;

	(void)id;
	for (i = 0; i < length; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t copy[INSN_SIZE];
		const uint8_t *bytes = data_of(insn, copy);
		size_t count = qemu_plugin_insn_size(insn);

		if (is_kernel && is_switch(bytes, count))
			qemu_plugin_register_vcpu_mem_cb(insn, on_switch,
							 QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW,
							 NULL);
		if (has_caches)
			qemu_plugin_register_vcpu_mem_cb(
				insn, on_access, QEMU_PLUGIN_CB_NO_REGS,
				QEMU_PLUGIN_MEM_RW,
				is_kernel ? &has_caches : NULL);
		if (!is_kernel && is_mark(bytes, count, MARK_BEGIN))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_begin, QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (!is_kernel && is_mark(bytes, count, MARK_END))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_end, QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (!is_kernel && size + count <= sizeof(code)) {
			memcpy(code + size, bytes, count);
			size += count;
		}
	}
	number = counts_of(identify(address, (uint32_t)length, code, size));
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_entered,
					     QEMU_PLUGIN_CB_NO_REGS,
					     (void *)(uintptr_t)number);
}

/* One argument, "NAME=VALUE"; what is wrong with it, or NULL. */
static const char *take(char *argument)
{
	if (!strncmp(argument, "out=", 4)) {
		out = fopen(argument + 4, "w");
		return out ? NULL : "cannot be written";
	}
	if (!strncmp(argument, "program=", 8)) {
		if (program_count == MAX_PROGRAMS)
			return "is one program too many";
		return program_open(&programs[program_count++], argument + 8);
	}
	if (!strcmp(argument, "caches=on") || !strcmp(argument, "caches=off")) {
		has_caches = !strcmp(argument, "caches=on");
		return NULL;
	}
	return "is no option: there are out=, caches= and program=";
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
			char **argv)
{
	unsigned int number;
	int i;

	if (info->version.min > qemu_plugin_version ||
	    info->version.cur < qemu_plugin_version) {
		fprintf(stderr,
			"uksm profile: QEMU knows plugins of versions %d to %d, this one is of version %d\n",
			info->version.min, info->version.cur,
			qemu_plugin_version);
		return 1;
	}
	has_copies = info->version.cur >= COPIES_VERSION;
	if (!info->system_emulation || strcmp(info->target_name, "x86_64") ||
	    info->system.smp_vcpus != 1) {
		fputs("uksm profile: the machine must be x86_64, with one processor\n",
		      stderr);
		return 1;
	}
	for (i = 0; i < argc; i++) {
		const char *wrong = take(argv[i]);

		if (wrong) {
			fprintf(stderr, "uksm profile: %s %s\n", argv[i], wrong);
			return 1;
		}
	}
	if (!out) {
		fputs("uksm profile: out=FILE is missing\n", stderr);
		return 1;
	}
	for (number = 0; number < program_count; number++)
		fprintf(out, "program %u %s\n", number, programs[number].path);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	return 0;
}
