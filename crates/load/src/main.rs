// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the load generators on a directory of any machine.
#![deny(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::{json, Map, Value};

use load::{find, Generator, LoadError, GENERATORS};

#[derive(Parser)]
#[command(about = "Deterministic load generators for file systems", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the generators
    List {
        /// As JSON, parameters included
        #[arg(long)]
        json: bool,
    },
    /// Show the parameters of a generator, with their defaults
    Show {
        name: String,
        /// As JSON schema
        #[arg(long)]
        json: bool,
    },
    /// Run a generator; its report is printed as JSON
    Run {
        name: String,
        /// The directory to work in
        #[arg(long)]
        dir: PathBuf,
        /// Parameters as a JSON object
        #[arg(long)]
        args: Option<String>,
        /// One parameter; the value is JSON, or else text
        #[arg(long = "set", value_name = "NAME=VALUE")]
        settings: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::List { json } => list(json),
        Command::Show { name, json } => show(&name, json),
        Command::Run {
            name,
            dir,
            args,
            settings,
        } => parameters(args.as_deref(), &settings).and_then(|args| run(&name, &dir, &args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,

        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::from(if error.is_mismatch() { 1 } else { 2 })
        }
    }
}

fn list(json: bool) -> load::Result<()> {
    if json {
        let all: Vec<Value> = GENERATORS.iter().map(describe).collect();
        println!("{:#}", Value::from(all));
        return Ok(());
    }
    for generator in GENERATORS {
        println!("{:18} {}", generator.name, generator.summary);
    }
    Ok(())
}

fn show(name: &str, json: bool) -> load::Result<()> {
    let generator = find(name)?;
    if json {
        println!("{:#}", describe(generator));
        return Ok(());
    }
    let schema = generator.schema();
    println!("{}: {}\n", generator.name, generator.summary);
    println!("{}\n", text(&schema["description"]));
    for (name, default) in generator.defaults().as_object().into_iter().flatten() {
        let description = text(&schema["properties"][name]["description"]);
        println!("  {name} = {default}");
        if !description.is_empty() {
            println!("      {}", description.replace('\n', "\n      "));
        }
    }
    Ok(())
}

fn describe(generator: &Generator) -> Value {
    json!({
        "name": generator.name, "summary": generator.summary,
        "defaults": generator.defaults(), "schema": generator.schema(),
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn run(name: &str, dir: &std::path::Path, args: &Value) -> load::Result<()> {
    let report = load::run(name, dir, args)?;
    println!("{}", json!(report));
    Ok(())
}

fn parameters(args: Option<&str>, settings: &[String]) -> load::Result<Value> {
    let wrong = |text: String| LoadError::Arguments(text);
    let mut all: Map<String, Value> = match args {
        None => Map::new(),
        Some(args) => serde_json::from_str(args).map_err(|e| wrong(format!("--args: {e}")))?,
    };
    for setting in settings {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| wrong(format!("--set {setting}: expected NAME=VALUE")))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        all.insert(name.to_owned(), value);
    }
    Ok(Value::Object(all))
}
