// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells which program's code is being translated.
 *
 * Problem: a plugin sees addresses and bytes, and no processes. Programs that
 * are linked the same way lie at the same addresses.
 * Approach: code is a program's if the bytes at its place in the program's file
 * are the same; code is never changed when it is loaded. A program that can lie
 * anywhere is placed when the block at its entry point is translated. Short
 * blocks that two programs have in the same place cannot be told apart: they
 * go to the first.
 */
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

#define PAGE_MASK 0xfffull

static const Elf64_Ehdr *header(const struct program *program)
{
	return (const Elf64_Ehdr *)program->file;
}

const char *program_open(struct program *program, const char *path)
{
	const Elf64_Ehdr *elf;
	struct stat status;
	void *file;
	int fd;

	*program = (struct program){ .path = path };
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return "cannot be opened";
	if (fstat(fd, &status) < 0 || status.st_size < (off_t)sizeof(*elf)) {
		close(fd);
		return "is too short for a program";
	}
	program->size = (size_t)status.st_size;
	file = mmap(NULL, program->size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		return "cannot be mapped";
	program->file = file;
	elf = header(program);
	if (memcmp(elf->e_ident, ELFMAG, SELFMAG) ||
	    elf->e_ident[EI_CLASS] != ELFCLASS64 ||
	    elf->e_machine != EM_X86_64 ||
	    elf->e_phentsize != sizeof(Elf64_Phdr) ||
	    elf->e_phoff > program->size ||
	    elf->e_phnum > (program->size - elf->e_phoff) / sizeof(Elf64_Phdr))
		return "is no x86-64 program";
	program->placed = elf->e_type == ET_EXEC;
	return NULL;
}

/* Whether the file has these bytes at this address. */
static bool is_at(const struct program *program, uint64_t address,
		  const struct code *code)
{
	const Elf64_Phdr *part = (const Elf64_Phdr *)(program->file +
						      header(program)->e_phoff);
	int left = header(program)->e_phnum;

	for (; left > 0; left--, part++) {
		uint64_t offset = address - part->p_vaddr;

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) ||
		    address < part->p_vaddr || offset >= part->p_filesz ||
		    code->length > part->p_filesz - offset ||
		    part->p_offset > program->size ||
		    part->p_filesz > program->size - part->p_offset)
			continue;
		return !memcmp(program->file + part->p_offset + offset,
			       code->bytes, code->length);
	}
	return false;
}

bool program_has(struct program *program, const struct code *code,
		 uint64_t *address)
{
	uint64_t entry = header(program)->e_entry;

	if (header(program)->e_type == ET_DYN &&
	    ((entry ^ code->address) & PAGE_MASK) == 0 &&
	    is_at(program, entry, code)) {
		program->moved_by = code->address - entry;
		program->placed = true;
	}
	*address = code->address - program->moved_by;
	return program->placed && is_at(program, *address, code);
}
