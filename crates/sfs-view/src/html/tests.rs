//! Whole pages.

use serde_json::{Value, json};

use super::report_page;
use crate::fixture;

fn page(numbers: &Value, segments: &Value, heat: Option<&Value>) -> String {
    let heat = heat.map(Value::to_string);
    report_page(
        &numbers.to_string(),
        &segments.to_string(),
        heat.as_deref(),
        "2026-11-26 10:30 UTC",
    )
    .expect("a page")
}

/// Checks that every element is closed, in order.
fn expect_balanced(page: &str) {
    const VOID: [&str; 9] =
        ["!DOCTYPE", "meta", "link", "br", "rect", "line", "circle", "path", "hr"];
    let mut open: Vec<&str> = Vec::new();
    for piece in page.split('<').skip(1) {
        let (tag, _) =
            piece.split_once('>').unwrap_or_else(|| panic!("no end of a tag: {piece:.60}"));
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "near {piece:.60}"),
            None if VOID.contains(&name) || tag.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn a_page_has_all_sections_and_a_cell_for_each_segment() {
    let page = page(&fixture::numbers(20), &fixture::segments(), Some(&fixture::heat()));
    expect_balanced(&page);
    for heading in [
        "Segment map",
        "Utilization",
        "Groups",
        "Hotness",
        "Files that were written most",
        "Written over time",
        "Wear",
        "Latency",
        "Last cleanings",
        "Volume",
    ] {
        assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    let map = page.split("id=\"segment-map\">").nth(1).and_then(|rest| rest.split("</div>").next());
    assert_eq!(map.expect("the map").matches("<i ").count(), fixture::SEGMENTS as usize);
    for part in
        ["Health: good.", "10.9 times over", "system.journal (41 %)", "1.27 bytes", "inode 19"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"));
}

#[test]
fn an_unmounted_volume_without_a_ledger_has_a_page() {
    let mut numbers = fixture::numbers(0);
    let fields = numbers.as_object_mut().expect("an object");
    for name in [
        "mount",
        "mount_point",
        "wear",
        "health",
        "latencies",
        "cleanings",
        "transport",
        "policies",
    ] {
        fields.remove(name);
    }
    fields.insert("errors".into(), json!([{"kind": "data", "count": 3}]));
    let page = page(&numbers, &fixture::segments(), None);
    expect_balanced(&page);
    assert!(page.contains("Health: warning.") && page.contains("not mounted; made"));
    assert!(page.contains("<h2>Findings</h2>") && page.contains("sfs-fsck -n --data /dev/sdb1"));
    assert!(!page.contains("<h2>Latency</h2>") && !page.contains("<h2>Written over time</h2>"));
}

/// Every text of the volume or the machine is hostile.
#[test]
fn no_text_of_a_volume_becomes_markup() {
    const EVIL: &str =
        "</title><script>alert(1)</script><img src=x onerror=\"alert('2')\">&amp;\u{202e}";
    let mut numbers = fixture::numbers(20);
    for name in ["label", "device", "mount_point", "uuid"] {
        numbers[name] = json!(EVIL);
    }
    numbers["transport"]["name"] = json!(EVIL);
    numbers["policies"] = json!({"placement": EVIL, "victims": EVIL});
    numbers["latencies"][0]["operation"] = json!(EVIL);
    numbers["wear"]["sentence"] = json!(EVIL);
    numbers["wear"]["days"][0]["day"] = json!(EVIL);
    numbers["wear"]["device"] = json!({"source": EVIL, "life_used_percent": 3, "pre_eol": EVIL});
    numbers["health"] = json!({"state": EVIL, "findings": [{"kind": EVIL, "count": 1, "sentence": EVIL, "remedy": EVIL}]});
    let mut heat = fixture::heat();
    heat["most_written_files"][0]["path"] = json!(EVIL);
    let page = page(&numbers, &fixture::segments(), Some(&heat));
    expect_balanced(&page);
    for part in ["<script", "<img", "onerror=\"", "\u{202e}"] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(page.matches("</title>").count() - page.matches("<g><title>").count(), 1);
    assert!(page.contains("&lt;script&gt;") && page.contains("&amp;amp;"));
}

#[test]
fn a_json_that_is_not_understood_is_refused() {
    let error = report_page("{}", "{\"segments\":7}", None, "now").expect_err("not segments");
    assert!(error.contains("segments") || error.contains("sequence"), "{error}");
}
