//! The parameters: what is refused, what the governors are, what is parsed.

use super::*;

fn full() -> Params {
    Params::governor(Governor::Full)
}

fn refused(change: impl FnOnce(&mut Params), name: &str) {
    let mut params = full();
    change(&mut params);
    let error = params.check().expect_err("accepted");
    assert_eq!(error.name, name, "{error}");
    assert!(!error.bounds.is_empty() && !error.value.is_empty());
}

#[test]
fn governors_are_accepted_and_halve() {
    for governor in Governor::ALL {
        Params::governor(governor).check().unwrap();
        assert_eq!(governor.name().parse::<Governor>().unwrap(), governor);
    }
    assert!("fast".parse::<Governor>().is_err());
    let shares = full().shares();
    assert_eq!(shares, vec![0.002, 0.2375, 0.475, 0.95]);
    assert_eq!(full().rounds(), vec![SECOND / 2; 4]);
    for pair in Params::governor(Governor::Quiet).shares().windows(2) {
        assert!(pair[0] <= pair[1]);
    }
}

#[test]
fn every_row_reads_what_it_prints() {
    let params = full();
    let mut quiet = Params::governor(Governor::Quiet);
    for row in params.rows() {
        quiet.set(row.name, &row.value).unwrap();
        let other = quiet.rows().into_iter().find(|r| r.name == row.name);
        assert_eq!(other.as_ref(), Some(&row));
    }
    assert_eq!(quiet, params);
}

#[test]
fn a_row_says_its_default_and_bounds() {
    let rows = full().rows();
    let description = |name: &str| {
        let row = rows.iter().find(|row| row.name == name).expect(name);
        format!("{}: {} ({}) [{}]", row.unit, row.doc, row.bounds, row.value)
    };
    for (name, says) in [
        (
            "cpu",
            "share: Share of one core the top level may use (0.2% to 95%) [95%]",
        ),
        (
            "round",
            "time: Length of a global sampling round (t), split evenly over the levels \
             (1ms to 1h) [2s]",
        ),
        (
            "level_rounds",
            "times: Round time of each level, bottom first (t_l), instead of an even split \
             (even, or 1ms to 1h a level, separated by commas) [even]",
        ),
        (
            "v_cow",
            "share: Regions with a higher share of broken pages are demoted (V_cow) \
             (off, or 0.1% to 100%) [50%]",
        ),
        (
            "v_life",
            "time: Regions younger than this are left alone (V_life) (off, or up to 1h) [100ms]",
        ),
        (
            "strength",
            "lines: Cache lines of a page that are hashed (adaptive, or 1 to 64) [4]",
        ),
        (
            "thp",
            "word: Whether huge pages are split (never or profit) [profit]",
        ),
        (
            "region_bytes",
            "size: Large mappings are cut into regions of this size \
             (2MiB to 1TiB, a power of two, in proportion to max_regions) [64MiB]",
        ),
    ] {
        assert_eq!(description(name), says);
    }
}

#[test]
fn text_is_read_with_units() {
    let mut params = full();
    params.set("level_rounds", "50ms, 20ms,10ms,5ms").unwrap();
    params.set("cpu", "0.5").unwrap();
    params.set("v_life", "off").unwrap();
    params.set("v_cow", "off").unwrap();
    params.set("strength", "8").unwrap();
    params.set("sleep", "1.5ms").unwrap();
    assert_eq!(params.global_round(), 85 * MILLISECOND);
    assert_eq!(
        (params.v_life, params.v_cow, params.strength),
        (0, None, Some(8))
    );
    assert_eq!(params.sleep, 1_500_000);
    params.check().unwrap();
}

#[test]
fn unreadable_text_is_refused() {
    for (name, value) in [
        ("cpu", "much"),
        ("cpu", "NaN"),
        ("round", "2"),
        ("round", "-2s"),
        ("levels", "-1"),
        ("index_bytes", "64MB"),
        ("thp", "always"),
        ("locked", "yes"),
        ("strength", "70000"),
        ("level_rounds", "1s,,1s"),
    ] {
        let error = full().set(name, value).expect_err(name);
        assert_eq!((error.name.as_str(), error.value.as_str()), (name, value));
    }
    let error = full().set("v_dupe", "1").expect_err("unknown name");
    assert!(error.to_string().contains("no such parameter") && error.bounds.contains("v_dup"));
}

#[test]
fn share_of_more_than_a_core_is_refused() {
    refused(|p| p.cpu = 0.96, "cpu");
}

#[test]
fn nan_share_is_refused() {
    refused(|p| p.cpu = f64::NAN, "cpu");
}

#[test]
fn bottom_above_top_is_refused() {
    refused(|p| (p.cpu, p.bottom_cpu) = (0.01, 0.02), "bottom_cpu");
}

#[test]
fn single_level_is_refused() {
    refused(|p| p.levels = 1, "levels");
}

#[test]
fn rounds_of_another_number_of_levels_are_refused() {
    refused(|p| p.level_rounds = Some(vec![SECOND; 3]), "level_rounds");
}

#[test]
fn zero_level_round_is_refused() {
    refused(
        |p| p.level_rounds = Some(vec![SECOND, SECOND, SECOND, 0]),
        "level_rounds",
    );
}

#[test]
fn shares_of_another_number_of_levels_are_refused() {
    refused(|p| p.level_shares = Some(vec![0.002, 0.95]), "level_shares");
}

#[test]
fn falling_shares_are_refused() {
    refused(
        |p| p.level_shares = Some(vec![0.002, 0.3, 0.2, 0.95]),
        "level_shares",
    );
}

#[test]
fn shares_that_contradict_cpu_are_refused() {
    refused(
        |p| p.level_shares = Some(vec![0.002, 0.1, 0.2, 0.5]),
        "level_shares",
    );
}

#[test]
fn shares_that_contradict_the_bottom_are_refused() {
    refused(
        |p| p.level_shares = Some(vec![0.003, 0.1, 0.2, 0.95]),
        "level_shares",
    );
}

#[test]
fn zero_round_is_refused() {
    refused(|p| p.round = 0, "round");
}

#[test]
fn zero_sleep_is_refused() {
    refused(|p| p.sleep = 0, "sleep");
}

#[test]
fn zero_v_dup_is_refused() {
    refused(|p| p.v_dup = 0.0, "v_dup");
}

#[test]
fn v_cow_above_one_is_refused() {
    refused(|p| p.v_cow = Some(1.1), "v_cow");
}

#[test]
fn endless_v_life_is_refused() {
    refused(|p| p.v_life = u64::MAX, "v_life");
}

#[test]
fn strength_above_a_page_is_refused() {
    refused(|p| p.strength = Some(65), "strength");
}

#[test]
fn tiny_index_is_refused() {
    refused(|p| p.index_bytes = Some(4096), "index_bytes");
}

#[test]
fn odd_region_size_is_refused() {
    refused(|p| p.region_bytes = 3 << 20, "region_bytes");
}

#[test]
fn more_pages_than_the_index_can_name_are_refused() {
    let sized = |region_bytes: u64, max_regions: usize| Params {
        region_bytes,
        max_regions,
        ..full()
    };
    for (bytes, regions) in [(64 << 20, 1 << 24), (2 << 30, 1 << 19), (1 << 40, 1023)] {
        sized(bytes, regions).check().unwrap();
        let error = sized(2 * bytes, regions).check().expect_err("accepted");
        assert_eq!(error.name, "region_bytes");
    }
    let error = sized(4 << 30, 1 << 19).check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameter region_bytes = 4GiB: must be at most 2GiB with max_regions = 524288"
    );
}

#[test]
fn thp_share_above_one_is_refused() {
    refused(|p| p.thp_share = 1.5, "thp_share");
}

#[test]
fn no_regions_are_refused() {
    refused(|p| p.max_regions = 0, "max_regions");
    refused(|p| p.max_process_regions = 63, "max_process_regions");
}

#[test]
fn more_sharers_than_a_frame_takes_are_refused() {
    refused(|p| p.max_sharers = 257, "max_sharers");
    refused(|p| p.max_sharers = 1, "max_sharers");
}
