/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What we use of the interface between QEMU and its TCG plugins.
 *
 * Problem: Debian installs a QEMU that loads plugins, and no header for them.
 * Approach: the few types and functions that are used are declared here, as
 * QEMU's manual describes version 1 of the interface ("QEMU TCG Plugins", QEMU
 * 6 to 8.2). QEMU says which versions it knows; with any that does not include
 * this one the plugin is refused, by QEMU or by qemu_plugin_install().
 */
#ifndef QEMU_API_H
#define QEMU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of the interface that is declared here. */
#define API_VERSION 1

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

enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
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

/* Adds a number to *place whenever the block is entered. */
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb,
					      enum qemu_plugin_op op,
					      void *place, uint64_t number);

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
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);

#endif
