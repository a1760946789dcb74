// SPDX-License-Identifier: MIT OR Apache-2.0
//! The generators by name, as the lab, the guest and the `load` program see them.

use std::path::Path;

use schemars::schema_for;
use serde_json::{Map, Value};

use crate::error::{LoadError, Result};
use crate::report::Report;
use crate::{
    appends, archive, churndirs, compilebench, createfiles, dirty_reuse, list, makedirs, manifest,
    marked, mix, personality, postmark, random_overwrite, remove, replay, sequential, Load,
};

/// A generator whose parameters are JSON.
pub struct Generator {
    pub name: &'static str,
    pub summary: &'static str,
    /// Parameters that differ from the struct's defaults under this name.
    preset: &'static [(&'static str, &'static str)],
    run: fn(&Path, Value) -> Result<Report>,
    defaults: fn() -> Value,
    schema: fn() -> Value,
}

const fn generator<L: Load>(
    name: &'static str,
    summary: &'static str,
    preset: &'static [(&'static str, &'static str)],
) -> Generator {
    Generator {
        name,
        summary,
        preset,
        run: run_as::<L>,
        defaults: || to_value(&L::default()),
        schema: || schema_for!(L).to_value(),
    }
}

/// Where CreateFiles puts its tree.
const FILES: &[(&str, &str)] = &[("path", "files")];

/// All generators, those of the paper first.
pub static GENERATORS: &[Generator] = &[
    generator::<makedirs::MakeDirs>("makedirs", "a tree of empty directories", &[]),
    generator::<list::ListDirs>("listdirs", "ls -lR of a tree", &[]),
    generator::<archive::Tar>("tardirs", "tar of a tree of directories", &[]),
    generator::<remove::Remove>("removedirs", "rm -r of a tree of directories", &[]),
    generator::<createfiles::CreateFiles>("createfiles", "a tree of small files", &[]),
    generator::<list::FindFiles>("findfiles", "find in a tree", &[]),
    generator::<archive::Tar>("tarfiles", "tar of a tree of files", FILES),
    generator::<remove::Remove>("removefiles", "rm -r of a tree of files", FILES),
    generator::<postmark::Postmark>("postmark", "small files made, read, grown, deleted", &[]),
    generator::<personality::Personality>(
        "personality",
        "Filebench's personalities: sets of files, threads, flow operations",
        &[],
    ),
    generator::<random_overwrite::RandomOverwrite>(
        "random_overwrite",
        "4 KiB writes at random places",
        &[],
    ),
    generator::<sequential::SequentialWrite>(
        "sequential_write",
        "one file from front to back",
        &[],
    ),
    generator::<churndirs::ChurnDirs>(
        "churndirs",
        "files made and removed in directories at random",
        &[],
    ),
    generator::<sequential::SequentialRead>("sequential_read", "one file from front to back", &[]),
    generator::<appends::AppendInTurn>(
        "append_in_turn",
        "files that grow, one block to each in turn",
        &[],
    ),
    generator::<appends::ReadInTurn>(
        "read_in_turn",
        "one block of each of append_in_turn's files in turn",
        &[],
    ),
    generator::<replay::Replay>("replay", "a recorded build, on virtual processors", &[]),
    generator::<compilebench::Compilebench>(
        "compilebench",
        "many at a time make, compile, clean, read and remove kernel trees",
        &[],
    ),
    generator::<mix::Mix>("mix", "parallel changes, verified against a model", &[]),
    generator::<dirty_reuse::DirtyReuse>(
        "dirty_reuse",
        "freed directory blocks become file data at once",
        &[],
    ),
    generator::<marked::Marked>(
        "marked",
        "changes with fsyncs, and notes of what a power cut must leave",
        &[],
    ),
    generator::<manifest::Manifest>("manifest", "sorted list of a tree, with hashes", &[]),
];

/// The generator of that name.
pub fn find(name: &str) -> Result<&'static Generator> {
    GENERATORS
        .iter()
        .find(|g| g.name == name)
        .ok_or_else(|| LoadError::Unknown {
            name: name.to_owned(),
            known: GENERATORS.iter().map(|g| g.name).collect(),
        })
}

/// Runs the generator of that name. `args` is an object of the parameters that
/// differ from the defaults, or null.
pub fn run(name: &str, dir: &Path, args: &Value) -> Result<Report> {
    find(name)?.run(dir, args)
}

impl Generator {
    /// All parameters with their defaults under this name.
    pub fn defaults(&self) -> Value {
        let mut defaults = (self.defaults)();
        for (key, value) in self.preset {
            defaults[*key] = (*value).into();
        }
        defaults
    }

    /// JSON schema of the parameters: types, descriptions, defaults.
    pub fn schema(&self) -> Value {
        let mut schema = (self.schema)();
        for (key, value) in self.preset {
            schema["properties"][*key]["default"] = (*value).into();
        }
        schema
    }

    pub fn run(&self, dir: &Path, args: &Value) -> Result<Report> {
        let mut all = match args {
            Value::Null => Map::new(),
            Value::Object(given) => given.clone(),
            other => return Err(LoadError::Arguments(format!("args is no object: {other}"))),
        };
        for (key, value) in self.preset {
            all.entry(*key).or_insert_with(|| (*value).into());
        }
        let mut report = (self.run)(dir, Value::Object(all))?;
        report.name = self.name.to_owned();
        Ok(report)
    }
}

fn run_as<L: Load>(dir: &Path, args: Value) -> Result<Report> {
    let load: L = serde_json::from_value(args)
        .map_err(|e| LoadError::Arguments(format!("arguments of the load: {e}")))?;
    let mut report = load.run(dir)?;
    report.args = to_value(&load);
    Ok(report)
}

fn to_value<L: Load>(load: &L) -> Value {
    serde_json::to_value(load).expect("parameters are plain data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_parameter_is_described_with_its_default() {
        for generator in GENERATORS {
            let (schema, defaults) = (generator.schema(), generator.defaults());
            for (name, default) in defaults.as_object().unwrap() {
                let property = &schema["properties"][name];
                let of = format!("{} {name}", generator.name);
                assert!(property.get("description").is_some(), "{of}");
                assert_eq!(property.get("default"), Some(default), "{of}");
            }
        }
    }

    #[test]
    fn wrong_names_are_refused_with_the_right_ones() {
        let error = run("makedir", Path::new("/nonexistent"), &Value::Null).unwrap_err();
        assert!(error.to_string().contains("makedirs, "), "{error}");
        let args = json!({"cuont": 1});
        let error = run("makedirs", Path::new("/nonexistent"), &args).unwrap_err();
        assert!(error.to_string().contains("cuont"), "{error}");
        assert!(error.to_string().contains("count"), "{error}");
    }

    #[test]
    fn names_share_a_generator_but_not_its_path() {
        assert_eq!(find("removedirs").unwrap().defaults()["path"], "dirs");
        assert_eq!(find("removefiles").unwrap().defaults()["path"], "files");
        assert_eq!(
            find("removefiles").unwrap().schema()["properties"]["path"]["default"],
            "files"
        );
    }
}
