/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What we use of the interface between QEMU and its TCG plugins.
 *
 * Problem: Debian installs a QEMU that loads plugins, and no header for them.
 * Approach: the few types and functions that are used are declared here, as
 * QEMU's manual describes versions 1 to 4 of the interface ("QEMU TCG Plugins",
 * QEMU 6 to 10). They are the same in all, except for qemu_plugin_insn_data().
 * QEMU knows several versions; one that knows neither version 1 nor 2 refuses
 * the plugin.
 */
#ifndef QEMU_API_H
#define QEMU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version before QEMU 9, and the oldest one that QEMU 9 and 10 accept. */
#define OLD_VERSION 1
#define NEW_VERSION 2
/* From this version on, data of an instruction are copied. */
#define COPIES_VERSION 3

#define EXPORTED __attribute__((visibility("default")))

/* Names this plugin in calls. */
typedef uint64_t qemu_plugin_id_t;

/* What QEMU is, and what it emulates. */
typedef struct {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
} qemu_info_t;

/* Handles that are valid while a block is translated. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;

/* What an access to memory was; its address comes beside it. */
typedef uint32_t qemu_plugin_meminfo_t;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
/* Reads and writes: QEMU 7.2 does not call back where only reads are asked for. */
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };

typedef void (*tb_trans_cb_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*exec_cb_t)(unsigned int cpu, void *data);
typedef void (*mem_cb_t)(unsigned int cpu, qemu_plugin_meminfo_t info,
			 uint64_t address, void *data);

/* QEMU reads the version, and calls the function once; anything but 0 ends it. */
extern EXPORTED int qemu_plugin_version;
EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
				 int argc, char **argv);

/* A callback for each block that is translated. */
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   tb_trans_cb_t callback);

/* A callback whenever the block is entered. */
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  exec_cb_t callback,
					  enum qemu_plugin_cb_flags flags,
					  void *data);

/* Only QEMU 9 and later have it. It is not called. */
extern __attribute__((weak)) void *qemu_plugin_scoreboard_new(size_t size);

/* A callback before the instruction, each time. */
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    exec_cb_t callback,
					    enum qemu_plugin_cb_flags flags,
					    void *data);

/* A callback after each access that the instruction makes. */
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      mem_cb_t callback,
				      enum qemu_plugin_cb_flags flags,
				      enum qemu_plugin_mem_rw rw, void *data);

/* Where in the machine's memory an access goes; NULL if QEMU does not know. */
struct qemu_plugin_hwaddr;
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info,
						  uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *
qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
/* Before COPIES_VERSION; since then it is a copy_data_t. */
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
typedef size_t (*copy_data_t)(const struct qemu_plugin_insn *insn, void *copy,
			      size_t size);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);

#endif
