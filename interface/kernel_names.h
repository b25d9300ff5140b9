/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * kernel_names.h - names of kernels, for tests of tried_kernels.h on both sides
 *
 *   UKSM_KERNEL_NAME(release, version, vendor, tried)
 *	The vendor is "" if it is not known, tried is 1 or 0. Numbers of builds and dates
 *	are examples.
 *
 * Each inclusion defines the macro first. Hence there is no include guard.
 */
UKSM_KERNEL_NAME("6.1.0-57-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26)", "Debian", 1)
UKSM_KERNEL_NAME("6.1.0-57-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26)", "Debian", 1)
UKSM_KERNEL_NAME("6.1.0-57-rt-amd64", "#1 SMP PREEMPT_RT Debian 6.1.192-3 (2026-11-26)", "Debian", 1)
UKSM_KERNEL_NAME("6.1.0-0.deb11.56-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.190-1~deb11u1 (2026-10-01)", "Debian", 1)
UKSM_KERNEL_NAME("6.12.117+deb12-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-11-14)", "Debian", 1)
UKSM_KERNEL_NAME("6.12.118+deb13-rt-amd64", "#1 SMP PREEMPT_RT Debian 6.12.118-1 (2026-11-20)", "Debian", 1)
UKSM_KERNEL_NAME("7.2.12+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.2.12-1~bpo13+1 (2026-10-20)", "Debian", 1)
UKSM_KERNEL_NAME("7.3.4+deb13-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-20)", "Debian", 1)
UKSM_KERNEL_NAME("6.12.117-uksm-guest", "#1 SMP Sun Nov 29 11:29:00 UTC 2026", "uksm's tests", 1)
UKSM_KERNEL_NAME("6.12.117-uksm", "#1 SMP Sun Nov 29 11:29:00 UTC 2026", "", 0)
UKSM_KERNEL_NAME("7.3.4+deb13-rt-amd64", "#1 SMP PREEMPT_RT Debian 7.3.4-1~bpo13+1 (2026-11-20)", "Debian", 0)
UKSM_KERNEL_NAME("5.10.0-8-amd64", "#1 SMP Debian 5.10.46-4 (2021-08-03)", "Debian", 0)
UKSM_KERNEL_NAME("6.18.3+deb14-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.18.3-1 (2026-01-05)", "Debian", 0)
UKSM_KERNEL_NAME("7.3-rc6-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.3~rc6-1~exp1 (2026-09-20)", "Debian", 0)
UKSM_KERNEL_NAME("7.30.1+deb14-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.30.1-1 (2030-01-05)", "Debian", 0)
UKSM_KERNEL_NAME("8.1.2+deb15-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 8.1.2-1 (2028-01-05)", "Debian", 0)
UKSM_KERNEL_NAME("6.12.25+rpt-rpi-v8", "#1 SMP PREEMPT Debian 1:6.12.25-1+rpt1 (2025-04-30)", "Debian", 0)
UKSM_KERNEL_NAME("6.12.25-amd64", "#1 SMP PREEMPT_DYNAMIC Kali 6.12.25-1kali1 (2025-04-30)", "", 0)
UKSM_KERNEL_NAME("6.12.48-own", "#3 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026", "", 0)
UKSM_KERNEL_NAME("6.12.48", "#3 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026", "", 0)
UKSM_KERNEL_NAME("6.8.12-4-pve", "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4 (2024-11-06T15:04Z)", "Proxmox", 0)
UKSM_KERNEL_NAME("6.12.0-55.9.1.el10_0.x86_64", "#1 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026", "Red Hat", 0)
UKSM_KERNEL_NAME("6.12.0-105.51.5.el10uek.x86_64", "#2 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 PST 2026", "Oracle", 0)
UKSM_KERNEL_NAME("6.12.9-1.el9.elrepo.x86_64", "#1 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 EST 2026", "ELRepo", 0)
UKSM_KERNEL_NAME("6.12.0-160000.5-default", "#1 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026 (abcdef0)", "", 0)
UKSM_KERNEL_NAME("6.8.0-45-generic", "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024", "Ubuntu", 0)
UKSM_KERNEL_NAME("7.0.0-12-generic", "#12~24.04.1-Ubuntu SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026", "Ubuntu", 0)
UKSM_KERNEL_NAME("7.2.9-200.fc43.x86_64", "#1 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026", "Fedora", 0)
UKSM_KERNEL_NAME("6.12.58-82.121.amzn2023.x86_64", "#1 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026", "Amazon", 0)
UKSM_KERNEL_NAME("6.12.23-android16-5-g0123456789ab", "#1 SMP PREEMPT Mon Nov  2 10:00:00 UTC 2026", "Android", 0)
UKSM_KERNEL_NAME("7.3.2-arch1-1", "#1 SMP PREEMPT_DYNAMIC Mon, 02 Nov 2026 10:00:00 +0000", "Arch Linux", 0)
UKSM_KERNEL_NAME("6.12.48-1-MANJARO", "#1 SMP PREEMPT_DYNAMIC Mon, 02 Nov 2026 10:00:00 +0000", "Manjaro", 0)
UKSM_KERNEL_NAME("7.3.2-2-cachyos", "#1 SMP PREEMPT_DYNAMIC Mon, 02 Nov 2026 10:00:00 +0000", "CachyOS", 0)
UKSM_KERNEL_NAME("6.18.24-talos", "#1 SMP Mon Nov  2 10:00:00 UTC 2026", "Talos", 0)
UKSM_KERNEL_NAME("6.12.84-flatcar", "#1 SMP PREEMPT_DYNAMIC Mon Nov  2 10:00:00 UTC 2026", "Flatcar", 0)
