//! What pages hold: families of contents in which hashes of a part of a page differ in worth.

use crate::PageBytes;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use uksm_policy::mix::SplitMix64;

/// Pages of a family at most: 128 MiB.
const MAX_PAGES: usize = 32_768;

/// Pages of one kind, all different.
pub(crate) struct Family {
    /// What they are.
    pub name: &'static str,
    /// The pages.
    pub pages: Vec<PageBytes>,
}

/// Makes page number so-and-so of a family.
type Make = fn(&mut SplitMix64, u64) -> PageBytes;

/// All families. The last two are read from this machine's files and differ with it.
pub(crate) fn families() -> Vec<Family> {
    let mut random = SplitMix64::new(0x0075_6B73_6D00);
    let made: [(&'static str, Make); 4] = [
        ("random", random_page),
        ("zero but 1-8 bytes", sparse_page),
        ("key-value store", store_page),
        ("equal but one counter", stamped_page),
    ];
    let mut families: Vec<Family> = made
        .into_iter()
        .map(|(name, make)| Family {
            name,
            pages: (0..MAX_PAGES as u64)
                .map(|i| make(&mut random, i))
                .collect(),
        })
        .collect();
    let text = |path: &Path| {
        path.extension().is_some_and(|is| {
            ["py", "pm", "txt", "h", "html", "json"]
                .iter()
                .any(|e| is == *e)
        })
    };
    families.push(Family {
        name: "text files",
        pages: read(&["/usr/share", "/usr/lib"], text),
    });
    let any = |_: &Path| true;
    families.push(Family {
        name: "programs",
        pages: read(&["/usr/bin", "/usr/sbin"], any),
    });
    for family in &mut families {
        keep_different(&mut family.pages);
        assert!(
            family.pages.len() > 1000,
            "{}: {} pages only",
            family.name,
            family.pages.len()
        );
    }
    families
}

fn keep_different(pages: &mut Vec<PageBytes>) {
    pages.sort_unstable();
    pages.dedup();
}

fn index(random: &mut SplitMix64, bound: u64) -> usize {
    usize::try_from(random.below(bound)).expect("a place in a page")
}

fn random_page(random: &mut SplitMix64, _: u64) -> PageBytes {
    let mut page = [0; 4096];
    for word in page.as_chunks_mut::<8>().0 {
        *word = random.next_u64().to_le_bytes();
    }
    page
}

/// A page of a heap that is hardly used.
fn sparse_page(random: &mut SplitMix64, _: u64) -> PageBytes {
    let mut page = [0; 4096];
    for _ in 0..=random.below(8) {
        page[index(random, 4096)] = u8::try_from(1 + random.below(255)).expect("a byte");
    }
    page
}

/// Objects of a store side by side: header with pointer, key with its number, value of one of
/// few kinds.
fn store_page(random: &mut SplitMix64, number: u64) -> PageBytes {
    let mut page = [0; 4096];
    for (slot, object) in page.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        let id = number * 32 + slot as u64;
        object[..8].copy_from_slice(&(0x7F00_0000_0000 + id * 128 + 48).to_le_bytes());
        object[8..16].copy_from_slice(&1u64.to_le_bytes());
        object[16..32].copy_from_slice(format!("user:{id:011}").as_bytes());
        object[48..64].fill(b'x');
        let kind = b'a' + u8::try_from(random.below(4)).expect("one of four");
        object[64..96].fill(kind);
    }
    page
}

/// Copies of one page that differ in the number at one place.
fn stamped_page(_: &mut SplitMix64, number: u64) -> PageBytes {
    let mut page = random_page(&mut SplitMix64::new(1), 0);
    page[2048..2056].copy_from_slice(&number.to_le_bytes());
    page
}

/// Whole pages of the files under `folders` that are `wanted`, in the order of their names.
fn read(folders: &[&str], wanted: impl Fn(&Path) -> bool + Copy) -> Vec<PageBytes> {
    let mut pages = Vec::new();
    for folder in folders {
        walk(Path::new(folder), wanted, &mut pages);
    }
    pages
}

fn walk(folder: &Path, wanted: impl Fn(&Path) -> bool + Copy, pages: &mut Vec<PageBytes>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if pages.len() >= MAX_PAGES {
            return;
        }
        let Ok(kind) = fs::symlink_metadata(&path) else {
            continue;
        };
        if kind.is_dir() {
            walk(&path, wanted, pages);
        } else if kind.is_file() && wanted(&path) {
            let Ok(mut file) = File::open(&path) else {
                continue;
            };
            let mut page = [0; 4096];
            while pages.len() < MAX_PAGES && file.read_exact(&mut page).is_ok() {
                pages.push(page);
            }
        }
    }
}
