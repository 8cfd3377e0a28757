//! The committed figures are drawn from the committed data.

use std::fs;
use std::path::Path;

use sfs_lab::report::{Document, FIGURES};

#[test]
fn the_figures_of_the_documents_are_drawn_from_their_data() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab");
    let scratch = tempfile::tempdir().expect("a directory");
    let drawn = scratch.path().join("lab");
    fs::create_dir(&drawn).expect("a directory");
    let document = Document::new(scratch.path());
    for figure in &FIGURES {
        let (csv, svg) = (format!("{}.csv", figure.name), format!("{}.svg", figure.name));
        fs::copy(committed.join(&csv), drawn.join(&csv)).expect("the data of the figure");
        document.redraw(figure).expect("the figure");
        let [committed, drawn] = [committed.join(&svg), drawn.join(&svg)]
            .map(|path| fs::read_to_string(path).expect("the figure"));
        assert!(committed == drawn, "{svg} is not up to date; run: sfs-lab redraw");
    }
    let svgs = fs::read_dir(&committed).expect("a folder").filter(|entry| {
        let entry = entry.as_ref().expect("an entry");
        entry.path().extension().is_some_and(|extension| extension == "svg")
    });
    assert_eq!(svgs.count(), FIGURES.len(), "every figure is in FIGURES");
    let index = fs::read_to_string(committed.join("index.md")).expect("the page of all figures");
    for figure in &FIGURES {
        assert!(
            index.contains(&format!("({}.svg)", figure.name)),
            "index.md lacks {}",
            figure.name
        );
    }
}
