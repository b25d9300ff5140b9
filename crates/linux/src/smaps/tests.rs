//! Lists as kernels write them, and as a process could try to have them written.

use std::io::BufReader;

use proptest::prelude::*;

use super::*;

fn parse(text: &[u8]) -> Vec<Result<SmapsEntry, String>> {
    SmapsEntries::of(text)
        .map(|entry| entry.map_err(|fault| fault.to_string()))
        .collect()
}

/// The only mapping of a line with this name.
fn named(inode: u64, name: &[u8]) -> SmapsEntry {
    let head = format!("1000-3000 rw-p 00000000 08:01 {inode}    ");
    let entries = parse(&[head.as_bytes(), name, b"\n"].concat());
    assert_eq!(entries.len(), 1);
    entries[0].clone().unwrap()
}

#[test]
fn names_of_files_are_bytes_whatever_they_look_like() {
    for name in [
        &b"/SYSV1"[..],
        b"/SYSV",
        b"/SYSV00000000 (deleted)",
        b"/a b (deleted)",
        b"/ends in a space ",
        b"/\xff\xfe",
        "/SYSV1\u{e9}\u{e9}".as_bytes(),
        b"/a\\012Anonymous: 64 kB",
        b"anon_inode:[kvm-vcpu:0]",
        b"[heap]",
    ] {
        let entry = named(9, name);
        assert_eq!(entry.name, name);
        assert_eq!((entry.start, entry.end), (0x1000, 0x3000));
        assert_eq!(entry.name_kind(), NameKind::File, "{name:?}");
    }
}

#[test]
fn the_kernels_names_are_distinguished() {
    for (name, kind) in [
        (&b""[..], NameKind::Anonymous),
        (b"[heap]", NameKind::Heap),
        (b"[stack]", NameKind::Stack),
        (b"[stack:77]", NameKind::Stack),
        (b"[stack:", NameKind::Stack),
        (b"[anon: x y]", NameKind::Named),
        (b"[vdso]", NameKind::Kernel),
        (b"[vvar_vclock]", NameKind::Kernel),
        (b"[uprobes]", NameKind::Kernel),
        (b"[", NameKind::Kernel),
        (b"/memfd:x (deleted)", NameKind::File),
    ] {
        assert_eq!(named(0, name).name_kind(), kind, "{name:?}");
    }
}

#[test]
fn amounts_are_in_pages_and_of_their_mapping() {
    let text = b"\
7f0000000000-7f0000010000 rw-p 00000000 00:00 0 [heap]
Rss:                  64 kB
Anonymous:            32 kB
AnonHugePages:        16 kB
Shared_Hugetlb:        8 kB
Private_Hugetlb:       4 kB
Swap:                  4 kB
THPeligible:           0
VmFlags: rd wr mr mw me ac sd mg\x20
7f0000010000-7f0000011000 ---p 00000000 00:00 0\x20
Rss:                   0 kB
";
    let entries: Vec<SmapsEntry> = parse(text).into_iter().map(Result::unwrap).collect();
    let heap = &entries[0];
    assert_eq!((heap.resident, heap.anonymous, heap.huge), (16, 8, 4));
    assert_eq!((heap.hugetlb, heap.swapped, heap.bytes()), (3, 1, 1 << 16));
    assert!(heap.is_private() && heap.is_writable() && heap.is_usable());
    assert!(heap.has_flag(&["mg"]) && !heap.has_flag(&["m", "sh"]));
    let last = &entries[1];
    assert_eq!((last.resident, last.flags.as_str()), (0, ""));
    assert!(last.is_private() && !last.is_usable());
}

#[test]
fn a_malformed_line_is_named_and_the_next_mapping_is_read() {
    let good = "1000-2000 rw-p 0 00:00 0\n";
    for (text, line) in [
        ("what is this\n", 1),
        ("\n", 1),
        ("Rss: 4 kB\n", 1),
        ("2000-1000 rw-p 0 00:00 0\n", 1),
        ("1000-2000 rw-pp 0 00:00 0\n", 1),
        ("1000-2000 rw-p 0 00:00\n", 1),
        ("1000-2000 rw-p 0 00:00 0\nRss: many\nSwap: 4 kB\n", 2),
        ("1000-10000000000000000 rw-p 0 00:00 0\n", 1),
    ] {
        let entries = parse(format!("{text}{good}").as_bytes());
        assert_eq!(entries.len(), 2, "{text}");
        let fault = entries[0].as_ref().unwrap_err();
        assert!(fault.starts_with(&format!("{line}: ")), "{fault}");
        assert!(entries[1].is_ok());
        let entries = parse(format!("{good}{text}").as_bytes());
        // A field may follow a mapping.
        let faults = usize::from(!text.starts_with("Rss: 4"));
        assert_eq!(
            entries.iter().filter(|entry| entry.is_err()).count(),
            faults
        );
    }
}

#[test]
fn a_line_without_bound_is_cut_and_its_rest_skipped() {
    let long = vec![b'a'; 3 << 20];
    let text = [
        &b"1000-2000 rw-p 0 00:00 9 /"[..],
        &long,
        b"\n2000-3000 rw-p 0 00:00 0\n",
    ]
    .concat();
    let mut entries = SmapsEntries::of(BufReader::new(text.as_slice()));
    let first = entries.next().unwrap().unwrap();
    assert!(first.name.len() < MAX_LINE_BYTES);
    assert!(entries.line.capacity() <= 2 * MAX_LINE_BYTES);
    assert_eq!(entries.next().unwrap().unwrap().start, 0x2000);
    assert!(entries.next().is_none());
    assert_eq!(entries.lines_read(), 2);
    // As long as the bound, and a byte around it.
    for length in MAX_LINE_BYTES - 1..=MAX_LINE_BYTES + 1 {
        let head = "1000-2000 rw-p 0 00:00 9 /";
        let text = format!("{head}{}\n{head}b\n", "a".repeat(length - head.len()));
        let entries: Vec<SmapsEntry> = parse(text.as_bytes())
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!((entries.len(), entries[1].name.as_slice()), (2, &b"/b"[..]));
    }
}

#[test]
fn own_mappings_are_read() {
    for file in ["maps", "smaps"] {
        let file = std::fs::File::open(format!("/proc/self/{file}")).unwrap();
        let entries: Vec<SmapsEntry> = SmapsEntries::of(BufReader::new(file))
            .map(Result::unwrap)
            .collect();
        let is = |kind| {
            entries
                .iter()
                .filter(|entry| entry.name_kind() == kind)
                .count()
        };
        assert_eq!((is(NameKind::Stack), is(NameKind::Heap)), (1, 1));
        assert!(is(NameKind::File) > 3 && is(NameKind::Kernel) > 0);
    }
}

/// Pieces that lists are made of, so that mutations come far.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"1000-3000 rw-p 00000000 08:01 9 /SYSV".to_vec()),
        Just(b"7f00-7f01 r--s 0 00:00 0 [anon:".to_vec()),
        Just(b"Rss: ".to_vec()),
        Just(b"VmFlags: rd mg".to_vec()),
        Just(b" kB\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"-".to_vec()),
        Just(b"ffffffffffffffff".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_keep_more_than_they_are(text in pieces()) {
        let lines = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let entries = parse(&text);
        prop_assert!(entries.len() <= lines);
        let names: usize = entries.iter().flatten().map(|entry| entry.name.len()).sum();
        prop_assert!(names <= text.len());
        for entry in entries.iter().flatten() {
            prop_assert!(entry.start <= entry.end);
            let _kind = entry.name_kind();
        }
    }

    #[test]
    fn any_name_leaves_the_fixed_fields_as_they_are(
        name in proptest::collection::vec(any::<u8>().prop_filter("escaped by the kernel", |&b| b != b'\n'), 0..200)
    ) {
        let entry = named(7, &[b"/", name.as_slice()].concat());
        prop_assert_eq!(&entry.name[1..], name.as_slice());
        prop_assert_eq!((entry.start, entry.end, entry.inode), (0x1000, 0x3000, 7));
        prop_assert_eq!(entry.name_kind(), NameKind::File);
    }
}
