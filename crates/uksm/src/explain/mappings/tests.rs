//! Lists of mappings, as kernels print them.

use super::*;

/// A mapping with these permissions, path, flags and amounts in kB.
fn entry(
    range: &str,
    perms: &str,
    path: &str,
    (rss, own, swap): (u64, u64, u64),
    flags: &str,
) -> String {
    let inode = u8::from(path.starts_with('/'));
    format!(
        "{range} {perms} 00000000 00:00 {inode} {path}\nSize: 64 kB\nRss: {rss} kB\nAnonymous: {own} kB\n\
         Swap: {swap} kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: 0 kB\nTHPeligible: 0\nVmFlags: {flags}\n"
    )
}

fn parse(text: &str) -> Mappings {
    let late = Instant::now() + Duration::from_secs(60);
    Mappings::parse(text.as_bytes(), "/proc/7/smaps", late, false).unwrap()
}

#[test]
fn kinds_of_mappings_follow_the_checks_of_the_module() {
    let plain = "rd wr mr mw me ac sd";
    for (perms, path, flags, kind) in [
        ("rw-p", "", plain, MappingKind::Mergeable),
        ("rw-p", "[heap]", plain, MappingKind::Mergeable),
        ("rw-p", "/lib/x.so", plain, MappingKind::Mergeable),
        ("r--p", "", "rd mr mw me ac sd", MappingKind::Mergeable),
        (
            "r--p",
            "/lib/x.so",
            "rd mr mw me sd",
            MappingKind::ReadOnlyFile,
        ),
        (
            "r-xp",
            "/lib/x.so",
            "rd ex mr mw me sd",
            MappingKind::ReadOnlyFile,
        ),
        ("---p", "", "mr mw me sd", MappingKind::NoAccess),
        (
            "rw-s",
            "/dev/zero (deleted)",
            "rd wr sh mr mw me ms sd",
            MappingKind::Shared,
        ),
        ("r--s", "/x", "rd mr me ms sd", MappingKind::Shared),
        (
            "rw-p",
            "/anon_hugepage (deleted)",
            "rd wr mr mw me de ht sd",
            MappingKind::Hugetlb,
        ),
        (
            "rw-s",
            "/dev/hugepages/x",
            "rd wr sh mr mw me ms de ht sd",
            MappingKind::Hugetlb,
        ),
        (
            "rw-s",
            "/dev/mem",
            "rd wr sh mr mw me ms pf io de dd sd",
            MappingKind::Device,
        ),
        (
            "r--p",
            "[vvar]",
            "rd mr pf io de dd sd",
            MappingKind::Device,
        ),
        (
            "r-xp",
            "[vdso]",
            "rd ex mr mw me de sd",
            MappingKind::Special,
        ),
        ("rw-p", "", "rd wr mr mw me dp sd", MappingKind::Special),
        (
            "rw-p",
            "",
            "rd wr mr mw me uw ac sd",
            MappingKind::Userfault,
        ),
        (
            "rw-p",
            "",
            "rd wr mr mw me ui ac sd",
            MappingKind::Userfault,
        ),
        (
            "rw-p",
            "",
            "rd wr mr mw me um ac sd",
            MappingKind::Mergeable,
        ),
        (
            "rw-p",
            "",
            "rd wr mr mw me lo ac sd",
            MappingKind::Mergeable,
        ),
    ] {
        let text = entry("7f0000000000-7f0000010000", perms, path, (64, 32, 4), flags);
        let mappings = parse(&text);
        assert_eq!(mappings.fault, None);
        let mapping = &mappings.all[0];
        assert_eq!(mapping.kind, kind, "{perms} {path} {flags}");
        assert_eq!((mapping.resident, mapping.own, mapping.swapped), (16, 8, 1));
    }
}

#[test]
fn memory_that_is_offered_to_ksm_is_left_to_it_while_it_runs() {
    let flags = "rd wr mr mw me ac mg sd";
    let text = entry("1000-2000", "rw-p", "", (4, 4, 0), flags);
    let kind = |ksm_runs| {
        let late = Instant::now() + Duration::from_secs(60);
        let read = Mappings::parse(text.as_bytes(), "/proc/7/smaps", late, ksm_runs);
        read.unwrap().all[0].kind
    };
    assert_eq!(kind(false), MappingKind::Mergeable);
    assert_eq!(kind(true), MappingKind::LeftToKsm);
}

#[test]
fn memory_of_hugetlbfs_is_resident_though_the_kernel_counts_it_apart() {
    let text = entry(
        "1000-2000",
        "rw-p",
        "/anon_hugepage (deleted)",
        (0, 0, 0),
        "rd ht",
    )
    .replace("Private_Hugetlb: 0", "Private_Hugetlb: 2048");
    assert_eq!(parse(&text).all[0].resident, 512);
}

#[test]
fn mappings_read_in_part_are_reported_as_such() {
    let one = |number: u64| {
        let range = format!(
            "{:x}-{:x}",
            number * 0x2000 + 0x1000,
            number * 0x2000 + 0x2000
        );
        entry(&range, "rw-p", "", (4, 4, 0), "rd wr mr mw me ac sd")
    };
    let text: String = (0..60_000).map(one).collect();
    let begun = Instant::now();
    let all = parse(&text);
    assert_eq!((all.all.len(), all.fault), (60_000, None));
    assert!(begun.elapsed() < Duration::from_secs(30));
    let cut = Mappings::parse(text.as_bytes(), "/proc/7/smaps", begun, false).unwrap();
    assert_eq!(cut.all.len(), 1);
    assert_eq!(
        cut.fault.unwrap(),
        "/proc/7/smaps: only the first 1 mappings were read in 10 s"
    );
}

#[test]
fn what_cannot_be_understood_is_named_and_the_rest_is_read() {
    let good = entry("1000-2000", "rw-p", "", (4, 4, 0), "rd");
    let mappings = parse(&format!("what is this\n{good}"));
    assert_eq!(mappings.all.len(), 1);
    let fault = mappings.fault.unwrap();
    assert_eq!(fault, "/proc/7/smaps:1: not a mapping");
}

#[test]
fn names_are_taken_as_they_are() {
    for path in ["/SYSV1", "/a b (deleted)", "[anon: x y]", "[stack:", ""] {
        let mappings = parse(&entry(
            "1000-2000",
            "rw-p",
            path,
            (4, 4, 0),
            "rd wr mr mw me",
        ));
        assert_eq!(mappings.all[0].name, path, "{:?}", mappings.fault);
    }
}

#[test]
fn a_process_that_is_gone_has_none() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(Mappings::read(root.path(), 7, false), None);
    let own = Mappings::read(Path::new("/proc"), std::process::id(), false).unwrap();
    assert!(
        own.all.iter().any(|mapping| mapping.name == "[stack]"),
        "{own:?}"
    );
    assert_eq!(own.fault, None);
}
