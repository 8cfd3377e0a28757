//! The list of crates in the programs, as SPDX 2.3: name, version, licence, checksum, and dependencies.
//!
//! It is made from `cargo metadata` and `Cargo.lock`, so it needs no further program, and the same sources give the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{cargo::cargo, workspace::Workspace};

/// Packages whose programs are distributed.
pub(crate) const PACKAGES: [&str; 5] = ["sfs", "sfs-mkfs", "sfs-fsck", "sfs-probe", "sfs-store"];

/// Returns the document for the programs of `target`, in version `version`, made at `created` (RFC 3339).
pub(crate) fn document(
    workspace: &Workspace,
    target: &str,
    version: &str,
    created: &str,
) -> Result<String> {
    let metadata = cargo(workspace)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target])
        .read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let lock = std::fs::read_to_string(workspace.root.join("Cargo.lock"))?;
    let compiler = crate::run::Cmd::new("rustc").arg("--version").read()?;
    let document =
        spdx(&metadata, &checksums(&lock)?, &Header { version, created, target, compiler })?;
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

struct Header<'a> {
    version: &'a str,
    created: &'a str,
    target: &'a str,
    compiler: String,
}

/// Returns the checksums of `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = toml::from_str(lock)?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("no packages")?;
    let text = |package: &toml::Value, key: &str| {
        package.get(key).and_then(toml::Value::as_str).map(str::to_owned)
    };
    let all = packages.iter().filter_map(|package| {
        let key = (text(package, "name")?, text(package, "version")?);
        Some((key, text(package, "checksum")?))
    });
    Ok(all.collect())
}

/// Returns for each package that is linked into a program the packages that it needs; build scripts, procedural macros'
/// own needs and tests are left out.
fn linked(metadata: &Value) -> Result<BTreeMap<String, Vec<String>>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = array(&metadata["packages"]);
    let mut next: Vec<String> = packages
        .iter()
        .filter(|package| {
            package["source"].is_null() && PACKAGES.contains(&text(&package["name"]).as_str())
        })
        .map(|package| text(&package["id"]))
        .collect();
    let nodes: BTreeMap<String, Vec<String>> = array(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let is_linked =
                |need: &&Value| array(&need["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let needs = array(&node["deps"]);
            let needs = needs.iter().filter(is_linked).map(|need| text(&need["pkg"]));
            (text(&node["id"]), needs.collect())
        })
        .collect();
    let mut found = BTreeMap::new();
    while let Some(id) = next.pop() {
        if found.contains_key(&id) {
            continue;
        }
        let needs = nodes.get(&id).with_context(|| format!("{id} is not resolved"))?.clone();
        next.extend(needs.iter().cloned());
        found.insert(id, needs);
    }
    Ok(found)
}

fn spdx(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    header: &Header<'_>,
) -> Result<Value> {
    let linked = linked(metadata)?;
    let empty = Vec::new();
    let all = metadata["packages"].as_array().unwrap_or(&empty);
    let mut packages = vec![
        json!({
            "name": "sfs-tools", "SPDXID": "SPDXRef-sfs-tools", "versionInfo": header.version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "MIT OR Apache-2.0",
            "copyrightText": "NOASSERTION",
        }),
        json!({
            "name": "rust", "SPDXID": "SPDXRef-rust", "versionInfo": header.compiler,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "MIT OR Apache-2.0",
            "copyrightText": "NOASSERTION",
        }),
    ];
    let mut ids = BTreeMap::new();
    for package in all
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| linked.contains_key(id)))
    {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, version) = (text("name"), text("version"));
        let spdx_id = format!("SPDXRef-{}-{}", name.replace('_', "-"), version.replace('+', "-"));
        ids.insert(text("id"), spdx_id.clone());
        let mut entry = json!({
            "name": name, "SPDXID": spdx_id, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
            "licenseConcluded": "NOASSERTION",
            // Old manifests separate alternatives by a slash.
            "licenseDeclared": text("license").replace('/', " OR "),
            "copyrightText": "NOASSERTION",
        });
        if let Some(checksum) = checksums.get(&(name.clone(), version.clone())) {
            entry["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": checksum }]);
            entry["downloadLocation"] =
                json!(format!("https://crates.io/api/v1/crates/{name}/{version}/download"));
            entry["externalRefs"] = json!([{
                "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                "referenceLocator": format!("pkg:cargo/{name}@{version}"),
            }]);
        }
        packages.push(entry);
    }
    let mut relations = BTreeSet::from([
        ("SPDXRef-DOCUMENT".to_owned(), "DESCRIBES", "SPDXRef-sfs-tools".to_owned()),
        ("SPDXRef-rust".to_owned(), "BUILD_TOOL_OF", "SPDXRef-sfs-tools".to_owned()),
    ]);
    for (id, needs) in &linked {
        let from = ids.get(id).with_context(|| format!("{id} has no package"))?;
        let is_root = PACKAGES.iter().any(|name| {
            let version = from.strip_prefix(&format!("SPDXRef-{name}-"));
            version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        });
        if is_root {
            relations.insert(("SPDXRef-sfs-tools".to_owned(), "CONTAINS", from.clone()));
        }
        for need in needs {
            let to = ids.get(need).with_context(|| format!("{need} has no package"))?;
            relations.insert((from.clone(), "DEPENDS_ON", to.clone()));
        }
    }
    let relations: Vec<Value> = relations
        .into_iter()
        .map(|(from, kind, to)| {
            json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
        })
        .collect();
    Ok(json!({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("sfs-tools-{}-{}", header.version, header.target),
        "documentNamespace": format!(
            "https://example.invalid/sfs/spdx/{}-{}-{}",
            header.version,
            header.target,
            header.created.replace(':', "")
        ),
        "creationInfo": { "created": header.created, "creators": ["Tool: cargo-xtask-dist"] },
        "packages": packages, "relationships": relations,
    }))
}
