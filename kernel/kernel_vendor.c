// SPDX-License-Identifier: GPL-2.0-only
/*
 * The vendor of a kernel, and whether uksm was tried on its kernels
 *
 * Distributions change the memory management under an unchanged version number. So a
 * kernel is compared by vendor, series and flavour. The rows are in tried_kernels.h. The
 * Rust side reads them by the same rules (interface/src/tried_kernels.rs), and the
 * kernels of interface/kernel_names.h are judged in tests of both sides.
 */
#include "kernel_vendor.h"

struct mark {
	const char *vendor;
	const char *text;
};

static const struct mark release_marks[] = {
#define UKSM_VENDOR_RELEASE(name, mark) { .vendor = name, .text = mark },
#include "tried_kernels.h"
};

static const struct mark version_marks[] = {
#define UKSM_VENDOR_VERSION(name, mark) { .vendor = name, .text = mark },
#include "tried_kernels.h"
};

struct tried_kernel {
	const char *vendor;
	const char *series;
	const char *flavours;
};

static const struct tried_kernel tried[] = {
#define UKSM_TRIED_KERNEL(name, number, list)				\
	{ .vendor = name, .series = number, .flavours = list },
#include "tried_kernels.h"
};

static const char list[] =
#define UKSM_TRIED_KERNEL(vendor, series, flavours)			\
	", " vendor " " series " (" flavours ")"
#include "tried_kernels.h"
	;

/* Without the first comma. */
const char *const uksm_tried_kernels = &list[2];

static const char *find_mark(const struct mark *marks, size_t count,
			     const char *text)
{
	size_t at;

	for (at = 0; at < count; at++)
		if (strstr(text, marks[at].text))
			return marks[at].vendor;
	return NULL;
}

/* "rt-amd64" of "6.1.0-57-rt-amd64"; empty if there is none. */
static const char *flavour_of(const char *release)
{
	const char *at = release;

	while ((at = strchr(at, '-'))) {
		at++;
		if (*at >= 'a' && *at <= 'z')
			return at;
	}
	return "";
}

#define DIGITS	"0123456789"
#define NUMBERS	DIGITS "."

/* Behind a mark; NULL if @text is NULL, or begins otherwise. */
static const char *behind(const char *text, const char *mark)
{
	size_t length = strlen(mark);

	return text && !strncmp(text, mark, length) ? text + length : NULL;
}

/* Behind characters of a set; NULL if @text is NULL, or begins with none of them. */
static const char *skip(const char *text, const char *set)
{
	size_t length = text ? strspn(text, set) : 0;

	return length ? text + length : NULL;
}

/*
 * "6.1.0-57-amd64", "6.1.0-0.deb11.56-amd64", "6.12.22+bpo-amd64",
 * "6.12.117+deb12-amd64", "6.12.74+deb13+1-amd64"
 */
static bool is_debian_release(const char *release)
{
	const char *at = skip(release, NUMBERS);
	const char *deb = skip(behind(at, "+deb"), NUMBERS);
	const char *number = behind(at, "-0.deb") ?: behind(at, "-");

	deb = skip(behind(deb, "+"), DIGITS) ?: deb;
	at = behind(behind(at, "+bpo") ?: deb ?: skip(number, NUMBERS), "-");
	return at == flavour_of(release);
}

/* "6.1.192-3 (2026-11-26)", "6.12.117-1~deb12u1", "7.3.4-1~bpo13+1" */
static bool is_debian_revision(const char *revision)
{
	const char *plain = skip(behind(skip(revision, NUMBERS), "-"), DIGITS);
	const char *deb = behind(skip(behind(plain, "~deb"), DIGITS), "u");
	const char *bpo = behind(skip(behind(plain, "~bpo"), DIGITS), "+");
	const char *end = skip(deb ?: bpo, DIGITS) ?: plain;

	/* The date is cut where it does not fit. */
	return end && (!*end || *end == ' ') && !end[strspn(end, " (-)" DIGITS)];
}

/* The revision in "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1"; NULL if a word is not known. */
static const char *debian_revision(const char *version)
{
	const char *at = behind(skip(behind(version, "#"), DIGITS), " ");

	at = behind(at, "SMP ") ?: at;
	at = behind(at, "PREEMPT ") ?: behind(at, "PREEMPT_DYNAMIC ") ?:
	     behind(at, "PREEMPT_LAZY ") ?: behind(at, "PREEMPT_RT ") ?: at;
	return behind(at, "Debian ");
}

/* "6.12.3" is of the series 6.12, and not of the series 6.1. */
static bool is_of_series(const char *name, const char *series, size_t length)
{
	return !strncmp(name, series, length) &&
	       (name[length] < '0' || name[length] > '9');
}

/*
 * Others build Debian's source with changes, and leave its name in the version: of these
 * Parrot, SONiC and StarlingX are known. They add something to the version, the
 * revision or the release.
 */
static bool is_of_debian(const char *release, const char *version)
{
	const char *revision = debian_revision(version);
	const char *minor = behind(skip(release, DIGITS), ".");
	const char *end = skip(minor, DIGITS);

	return revision && end && is_debian_revision(revision) &&
	       is_debian_release(release) &&
	       is_of_series(revision, release, end - release);
}

/**
 * uksm_kernel_vendor() - the vendor of a kernel by its names
 * @release: what "uname -r" prints
 * @version: what "uname -v" prints
 *
 * Return: a name of tried_kernels.h; NULL if no mark is known, or if a kernel with Debian's
 * mark was not built by Debian.
 */
const char *uksm_kernel_vendor(const char *release, const char *version)
{
	const char *vendor;

	vendor = find_mark(release_marks, ARRAY_SIZE(release_marks), release);
	if (vendor)
		return vendor;
	vendor = find_mark(version_marks, ARRAY_SIZE(version_marks), version);
	if (vendor && !strcmp(vendor, "Debian") &&
	    !is_of_debian(release, version))
		return NULL;
	return vendor;
}

/* Is @word between the commas of @words, and one word? */
static bool has_word(const char *words, const char *word)
{
	size_t length = strlen(word);
	const char *at;

	if (word[strcspn(word, ", ")])
		return false;
	for (at = words; length && (at = strstr(at, word)); at++)
		if ((at == words || at[-1] == ' ') &&
		    (!at[length] || at[length] == ','))
			return true;
	return false;
}

/**
 * uksm_is_tried() - did the tests pass on kernels like this?
 * @vendor: of the kernel; NULL if it is not known
 * @release: of the kernel
 */
bool uksm_is_tried(const char *vendor, const char *release)
{
	size_t at;

	if (!vendor)
		return false;
	for (at = 0; at < ARRAY_SIZE(tried); at++)
		if (!strcmp(tried[at].vendor, vendor) &&
		    is_of_series(release, tried[at].series,
				 strlen(tried[at].series)) &&
		    has_word(tried[at].flavours, flavour_of(release)))
			return true;
	return false;
}
