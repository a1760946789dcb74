// SPDX-License-Identifier: MIT OR Apache-2.0
//! `job.json`: the steps that the lab asks for (docs/reference/interfaces.md, seam 1).
//! The whole job is read before its first step runs, so that a typing error in
//! the last one costs nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// What the lab asks for.
#[derive(Clone, Debug)]
pub struct Job {
    pub steps: Vec<Step>,
    /// How many disks there are.
    pub disks: u32,
}

/// A step, and the name under which it is reported.
#[derive(Clone, Debug)]
pub struct Step {
    pub action: Action,
    pub phase: Option<String>,
    /// A failure of this step does not end the job.
    pub may_fail: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    Mount(Mount),
    Umount {
        #[serde(default = "default_dir")]
        dir: String,
    },
    Load {
        name: String,
        #[serde(default = "default_dir")]
        dir: String,
        #[serde(default)]
        args: Value,
    },
    Sync {},
    DropCaches {},
    WaitClean {
        /// Virtual seconds; unlimited if absent.
        limit_s: Option<f64>,
    },
    Exec(Exec),
    /// The user's own command (`command.rs`).
    Command(UserCommand),
    /// Ends every program that still runs.
    EndPrograms {
        /// Names of those that go on: they belong to the file system.
        #[serde(default)]
        but: Vec<String>,
    },
    Journal {
        extents: Vec<[u64; 2]>,
        /// Number of the disk, in this and the others of these steps.
        #[serde(default)]
        disk: u32,
    },
    Superblock {
        extents: Vec<[u64; 2]>,
        #[serde(default)]
        disk: u32,
    },
    Write {
        path: String,
        text: String,
    },
    Read {
        path: String,
    },
    Sleep {
        seconds: f64,
    },
    Mark {
        text: String,
    },
    Save {
        #[serde(default)]
        disk: u32,
    },
    /// For a crash drive: looks at states of it (`check.rs`).
    CheckStates {
        /// File under /run/out: what to look at.
        checks: String,
        /// File under /run/out for what was found.
        answers: String,
    },
    Shell {
        #[serde(default = "default_dir")]
        dir: String,
    },
    Background {
        /// Steps as in a job; checked when the job is read.
        steps: Vec<Value>,
    },
    StopBackground {},
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub fs: String,
    #[serde(default)]
    pub options: String,
    #[serde(default = "default_dir")]
    pub dir: String,
    #[serde(default = "default_device")]
    pub device: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    /// File under /run/out for the program's standard output.
    pub stdout: Option<String>,
    /// Virtual seconds after which the program and its children are killed.
    pub limit_s: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct UserCommand {
    /// Its own phase, whose name no mark may have.
    pub name: String,
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default = "default_dir")]
    pub cwd: String,
    /// Files under /run/out for what it prints.
    pub stdout: String,
    pub stderr: String,
    /// Virtual seconds after which the command and its children are killed.
    pub limit_s: f64,
}

fn default_dir() -> String {
    "/mnt".into()
}

fn default_device() -> String {
    "/dev/shd0".into()
}

impl Action {
    /// The word after `do`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mount(_) => "mount",
            Self::Umount { .. } => "umount",
            Self::Load { .. } => "load",
            Self::Sync {} => "sync",
            Self::DropCaches {} => "drop_caches",
            Self::WaitClean { .. } => "wait_clean",
            Self::Exec(_) => "exec",
            Self::Command(_) => "command",
            Self::EndPrograms { .. } => "end_programs",
            Self::Journal { .. } => "journal",
            Self::Superblock { .. } => "superblock",
            Self::Write { .. } => "write",
            Self::Read { .. } => "read",
            Self::Sleep { .. } => "sleep",
            Self::Mark { .. } => "mark",
            Self::Save { .. } => "save",
            Self::CheckStates { .. } => "check_states",
            Self::Shell { .. } => "shell",
            Self::Background { .. } => "background",
            Self::StopBackground {} => "stop_background",
        }
    }

    /// What would make no sense in a child process that runs for ever.
    fn fits_background(&self) -> bool {
        !matches!(
            self,
            Self::Background { .. }
                | Self::StopBackground {}
                | Self::Shell { .. }
                | Self::Command(_)
                | Self::EndPrograms { .. }
        )
    }
}

/// Reads a whole job.
pub fn parse(text: &str) -> Result<Job, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Text {
        steps: Vec<Value>,
        #[serde(default = "one")]
        disks: u32,
    }
    fn one() -> u32 {
        1
    }
    let job: Text = serde_json::from_str(text).map_err(|e| format!("job.json: {e}"))?;
    Ok(Job {
        steps: parse_steps(&job.steps)?,
        disks: job.disks,
    })
}

/// Reads a list of steps, as in a job or in `background`.
pub fn parse_steps(steps: &[Value]) -> Result<Vec<Step>, String> {
    let numbered = steps.iter().enumerate();
    numbered
        .map(|(index, step)| parse_step(index, step))
        .collect()
}

fn parse_step(index: usize, step: &Value) -> Result<Step, String> {
    #[derive(Deserialize)]
    struct Common {
        phase: Option<String>,
        #[serde(default)]
        may_fail: bool,
    }
    let wrong = |e: &dyn std::fmt::Display| format!("step {index} of the job, {step}: {e}");
    let common: Common = serde_json::from_value(step.clone()).map_err(|e| wrong(&e))?;
    let mut own: Map<String, Value> =
        serde_json::from_value(step.clone()).map_err(|e| wrong(&e))?;
    own.remove("phase");
    own.remove("may_fail");
    let action: Action = serde_json::from_value(own.into()).map_err(|e| wrong(&e))?;
    check(&action).map_err(|e| wrong(&e))?;
    Ok(Step {
        action,
        phase: common.phase,
        may_fail: common.may_fail,
    })
}

fn check(action: &Action) -> Result<(), String> {
    match action {
        Action::Exec(Exec { argv, .. }) | Action::Command(UserCommand { argv, .. })
            if argv.is_empty() =>
        {
            Err("argv is empty".into())
        }
        Action::Load { name, .. } => load::find(name).map(|_| ()).map_err(|e| e.to_string()),
        Action::Background { steps } => {
            match parse_steps(steps)?
                .iter()
                .find(|s| !s.action.fits_background())
            {
                Some(step) => Err(format!("{} cannot run in background", step.action.name())),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_filled_in() {
        let job = parse(r#"{"steps": [{"do": "mount", "fs": "ext4"}, {"do": "sync"}]}"#).unwrap();
        let steps = job.steps;
        assert_eq!(job.disks, 1);
        let Action::Mount(mount) = &steps[0].action else {
            panic!("{steps:?}")
        };
        assert_eq!(
            (mount.dir.as_str(), mount.device.as_str()),
            ("/mnt", "/dev/shd0")
        );
        assert_eq!(steps[0].phase, None);
        assert!(!steps[1].may_fail);
    }

    #[test]
    fn a_job_tells_how_many_disks_there_are_and_a_step_which_it_means() {
        let job = parse(r#"{"steps": [{"do": "save"}, {"do": "save", "disk": 2}], "disks": 3}"#);
        let job = job.unwrap();
        assert_eq!(job.disks, 3);
        let disks = job.steps.iter().map(|step| step.action.clone());
        let expected = [Action::Save { disk: 0 }, Action::Save { disk: 2 }];
        assert_eq!(disks.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn phase_and_may_fail_belong_to_every_step() {
        let job = r#"{"steps": [{"do": "sync", "phase": "make", "may_fail": true}]}"#;
        let steps = parse(job).unwrap().steps;
        assert_eq!(steps[0].phase.as_deref(), Some("make"));
        assert!(steps[0].may_fail);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (job, word) in [
            (r#"{"steps": [{"do": "sink"}]}"#, "sink"),
            (r#"{"steps": [{"do": "sync", "pahse": "x"}]}"#, "pahse"),
            (
                r#"{"steps": [{"do": "sync"}, {"do": "umount", "dri": "x"}]}"#,
                "step 1",
            ),
            (
                r#"{"steps": [{"do": "load", "name": "makedir"}]}"#,
                "makedirs",
            ),
            (r#"{"steps": [{"do": "exec", "argv": []}]}"#, "argv"),
            (
                r#"{"steps": [{"do": "background", "steps": [{"do": "shell"}]}]}"#,
                "background",
            ),
            (r#"{"stps": []}"#, "stps"),
        ] {
            let error = parse(job).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn names_are_the_words_of_the_job() {
        for word in [
            "sync",
            "drop_caches",
            "wait_clean",
            "save",
            "stop_background",
            "umount",
        ] {
            let steps = parse_steps(&[serde_json::json!({"do": word})]).unwrap();
            assert_eq!(steps[0].action.name(), word);
        }
    }
}
