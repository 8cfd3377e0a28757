//! The report in a real browser: no message on the console, a visible cell for each segment, nothing wider than the
//! screen of a phone or a desktop. `cargo xtask test --long` runs this test; it needs Chromium.
//!
//! With `SFS_PICTURES` set to an absolute path, `pictures_for_the_readme` writes the pictures of the README there.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Parser;
use harness::{TestVolume, can_mount};
use sfs_testkit::{SeededRng, scratch_directory};

/// Names of the program.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Widths of a phone and a desktop.
const WIDTHS: [u32; 2] = [390, 1280];

/// A page that shows the report in a frame and writes down what it measures there.
const FRAME: &str = r##"<!DOCTYPE html><meta charset="utf-8"><body><iframe src="report.html" width="WIDTH" height="900"
style="border:0"></iframe><pre id="measured"></pre><script>
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const cells = [...page.querySelectorAll("#segment-map > i")].map((cell) => cell.getBoundingClientRect());
  const seen = cells.filter((cell) => cell.width >= 2 && cell.height >= 2).length;
  const wide = cells.filter((cell) => cell.right > root.clientWidth + 1).length;
  document.getElementById("measured").textContent =
    `cells=${cells.length} seen=${seen} wide=${wide} overflow=${root.scrollWidth - root.clientWidth} ` +
    `charts=${page.querySelectorAll("svg.chart").length} title=${page.title}`;
});
</script>"##;

fn browser(arguments: &[&str]) -> Output {
    let base = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--hide-scrollbars",
    ];
    let profile = scratch_directory();
    let profile = format!("--user-data-dir={}", profile.path().display());
    for name in BROWSERS {
        let mut command = Command::new(name);
        if let Ok(output) = command.args(base).arg(&profile).args(arguments).output() {
            return output;
        }
    }
    panic!("no Chromium: apt-get install chromium");
}

/// Asserts that the browser had nothing to say about the page.
fn expect_silence(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    let of_page: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(output.status.success() && of_page.is_empty(), "{of_page:#?}\n{said}");
}

/// Runs `sfs-ctl`, and returns its output.
fn sfs_ctl(arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    let output = command.args(arguments).output().expect("sfs-ctl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Makes a volume with files in it, and returns its report and its number of segments.
fn make_report(scratch: &Path) -> usize {
    let (image, content) = (scratch.join("image"), scratch.join("content"));
    fs::create_dir(&content).expect("a directory");
    for no in 0..40 {
        fs::write(content.join(no.to_string()), vec![no; 300_000]).expect("a file");
    }
    let label = "</title><script>console.error(1)</script>";
    let paths = [content.to_str().expect("UTF-8"), image.to_str().expect("UTF-8")];
    let arguments = ["sfs-mkfs", "--quiet", "--size", "128M", "--label", label, "--from"];
    let options = sfs_mkfs::MkfsOptions::parse_from(arguments.into_iter().chain(paths));
    sfs_mkfs::make(&options).expect("a volume");
    let report = scratch.join("report.html");
    sfs_ctl(&["report", paths[1], "--output", report.to_str().expect("UTF-8")]);
    let json: serde_json::Value =
        serde_json::from_slice(&sfs_ctl(&["segments", "--json", paths[1]])).expect("JSON");
    json["segments"].as_array().expect("segments").len()
}

#[test]
#[ignore = "needs Chromium; cargo xtask test --long runs it"]
fn the_report_renders_in_a_browser() {
    let scratch = scratch_directory();
    let count = make_report(scratch.path());
    let url = |name: &str| format!("file://{}/{name}", scratch.path().display());
    for width in WIDTHS {
        let frame = FRAME.replace("WIDTH", &width.to_string());
        fs::write(scratch.path().join("frame.html"), frame).expect("a file");
        let access = "--allow-file-access-from-files";
        let size = format!("--window-size={},1000", width + 40);
        let output = browser(&[
            access,
            &size,
            "--virtual-time-budget=20000",
            "--dump-dom",
            &url("frame.html"),
        ]);
        expect_silence(&output);
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let measured = dom.split("id=\"measured\">").nth(1).and_then(|rest| rest.split('<').next());
        let measured = measured.unwrap_or_else(|| panic!("nothing was measured: {dom}"));
        let expected = format!("cells={count} seen={count} wide=0 overflow=0 charts=");
        assert!(measured.starts_with(&expected), "{width}: {measured}, of {count} segments");
        assert!(measured.contains("title=SFS report: &lt;/title&gt;&lt;script&gt;"), "{measured}");
        // A screenshot of the page itself; `SFS_SCREENSHOTS` names a directory to keep it in.
        let name = format!("report-{width}.png");
        let shots =
            std::env::var_os("SFS_SCREENSHOTS").map_or(scratch.path().to_owned(), Into::into);
        let shot = shots.join(&name);
        let screenshot = format!("--screenshot={}", shot.display());
        let size = format!("--window-size={},2400", width.max(500));
        expect_silence(&browser(&[&screenshot, &size, &url("report.html")]));
        let png = fs::read(&shot).expect("the screenshot");
        assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000, "{} bytes", png.len());
    }
}

/// Files of the volume in the pictures: path, MiB, and share of the writes in percent.
const FILES: [(&str, u64, u64); 5] = [
    ("home/user/photos", 90, 1),
    ("home/user/mail.db", 30, 12),
    ("var/log/journal/system.journal", 12, 62),
    ("var/lib/app/state.db", 6, 20),
    ("usr/lib/programs", 40, 5),
];

/// Overwrites blocks of the files until `is_over`, and makes some of them durable.
fn overwrite(dir: &Path, is_over: &AtomicBool) {
    let files = FILES.map(|(name, ..)| {
        OpenOptions::new().read(true).write(true).open(dir.join(name)).expect("opening")
    });
    let mut random = SeededRng::new(42);
    let mut block = vec![0; 4096];
    for no in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let mut share = random.below(100);
        let chosen = FILES.iter().position(|(_, _, of)| {
            let is_it = share < *of;
            share = share.saturating_sub(*of);
            is_it
        });
        let at = chosen.unwrap_or(0);
        let offset = random.below(FILES[at].1 * 256) * 4096;
        random.fill(&mut block);
        files[at].write_all_at(&block, offset).expect("writing");
        if no % 3 == 0 {
            files[4].read_exact_at(&mut block, offset % (40 << 20)).expect("reading");
        }
        if no % 40 == 0 {
            files[at].sync_data().expect("a sync");
        }
    }
}

#[test]
#[ignore = "writes pictures into the directory that SFS_PICTURES names"]
fn pictures_for_the_readme() {
    let Some(pictures) = std::env::var_os("SFS_PICTURES").map(PathBuf::from) else { return };
    if !can_mount() {
        return;
    }
    let scratch = scratch_directory();
    let image = scratch.path().join("card.img");
    let arguments = ["sfs-mkfs", "--quiet", "--size", "256M", "--label", "camera"];
    let arguments = arguments.into_iter().chain([image.to_str().expect("UTF-8")]);
    sfs_mkfs::make(&sfs_mkfs::MkfsOptions::parse_from(arguments)).expect("a volume");
    let Some(mut volume) = TestVolume::existing(image).looped() else { return };
    // A path as users have it.
    volume.dir = "/mnt/card".into();
    fs::create_dir_all(&volume.dir).expect("a mount point");
    let mount = volume.mount("writeback=off");
    let mut random = SeededRng::new(1);
    for (name, mib, _) in FILES {
        let path = mount.dir.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, random.bytes(mib as usize * (1 << 20))).expect("writing");
    }
    let dir = mount.dir.to_str().expect("UTF-8");
    let secs = std::env::var("SFS_PICTURE_SECS")
        .ok()
        .and_then(|secs| secs.parse::<u32>().ok())
        .unwrap_or(60);
    let report = scratch.path().join("report.html");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| overwrite(&mount.dir, &is_over));
        // The picture needs a volume that has been cleaned; the load has a time, not a result.
        let samples = secs.max(1).to_string();
        let size = ["--columns", "100", "--lines", "32"];
        let svg = sfs_ctl(&[&["top", "--svg", "--samples", &samples, dir][..], &size].concat());
        fs::write(pictures.join("top.svg"), svg).expect("a file");
        sfs_ctl(&["report", dir, "--output", report.to_str().expect("UTF-8")]);
        is_over.store(true, Ordering::Relaxed);
    });
    mount.unmount();
    fs::remove_dir(&volume.dir).expect("the mount point is empty");
    let url = format!("file://{}", report.display());
    let screenshot = format!("--screenshot={}", pictures.join("report.png").display());
    expect_silence(&browser(&[&screenshot, "--window-size=1000,1150", &url]));
}
