// SPDX-License-Identifier: MIT OR Apache-2.0
//! A story: random operations on a recorded device, what the model says after each, and what was promised when.

use super::choose::choose;
use super::config::{Config, Load};
use super::model::{Content, File, Id, Model};
use super::random::{mix, Grain, Random};
use super::reach::Reach;
use super::sim::{Action, Actions, Command, Sim, Trouble};
use super::steps::Ring;
use super::steps::{Pair, Step, SECOND_NS};
use safs::format::{Ino, Key, Kind};
use safs::{Options, XattrMode, RETAIN_ATTRIBUTE};
use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Each step is said: for one case that is looked at.
pub static VERBOSE: AtomicBool = AtomicBool::new(false);

/// What of the model's state at a step is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All names.
    Names,
    /// All names, and this one's contents.
    One(Id),
    All,
}

#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// It was made when the device had done so many actions.
    pub actions: usize,
    pub step: usize,
    pub what: What,
}

pub struct Story {
    pub seed: u64,
    pub options: Options,
    pub blank: Sim,
    pub actions: Vec<Action>,
    /// After each step, the first before all: actions so far, and a number for all names and attributes; none where the
    /// file system made something and did not come to tell what.
    pub ends: Vec<(usize, Option<u64>)>,
    pub promises: Vec<Promise>,
    /// Of each file what it was after which steps.
    pub files: BTreeMap<Id, Vec<(usize, File)>>,
    /// Of each ring directory the files that were made in it, in order: step and number.
    pub ring_files: BTreeMap<Id, Vec<(usize, Id)>>,
    pub inos: BTreeMap<Id, Ino>,
    pub ids: BTreeMap<Ino, Id>,
    pub rings: Vec<Ring>,
    pub reach: Reach,
}

/// All that is written down of a name and of what has it.
#[derive(Hash)]
pub struct Named<'a> {
    pub directory: u64,
    pub name: &'a [u8],
    pub ino: u64,
    pub kind: u8,
    pub permissions: u32,
    pub owner: (u32, u32),
    pub nlink: u32,
    pub xattrs: Vec<(&'a [u8], &'a [u8])>,
    pub link: &'a [u8],
}

pub fn number_of(named: &Named) -> u64 {
    let mut hasher = DefaultHasher::new();
    named.hash(&mut hasher);
    hasher.finish()
}

/// A number for all names and attributes; what is in ring directories is looked at by itself.
fn names_of(model: &Model, inos: &BTreeMap<Id, Ino>, rings: &[Ring]) -> u64 {
    let mut sum = 0u64;
    let mut waiting = vec![1];
    while let Some(directory) = waiting.pop() {
        let Content::Directory(entries) = &model.nodes[&directory].content else {
            continue;
        };
        if rings.iter().any(|ring| ring.id == directory) {
            continue;
        }
        for (name, id) in entries {
            let node = &model.nodes[id];
            let kind = match node.content {
                Content::Directory(_) => 4,
                Content::File(_) => 8,
                Content::Link(_) => 10,
                Content::Fifo => 1,
            };
            let link: &[u8] = match &node.content {
                Content::Link(target) => target,
                _ => &[],
            };
            let named = Named {
                directory: inos[&directory].0,
                name,
                ino: inos[id].0,
                kind,
                permissions: node.permissions,
                owner: node.owner,
                nlink: node.nlink,
                xattrs: node
                    .xattrs
                    .iter()
                    .map(|(name, value)| (&name[..], &value[..]))
                    .collect(),
                link,
            };
            sum = sum.wrapping_add(number_of(&named));
            waiting.push(*id);
        }
    }
    sum
}

/// A story that is being told.
struct Teller {
    config: Config,
    pair: Pair,
    actions: Actions,
    story: Story,
    random: Random,
    last_tick_ns: i64,
    /// When each step was done, by the clock that only goes forward.
    times: Vec<i64>,
    /// Time that passed while the wall clock was set back.
    untold_ns: i64,
    /// The last step was refused for want of space.
    was_refused: bool,
}

impl Story {
    /// Tells the story of a seed.
    pub fn tell(config: Config, seed: u64) -> Story {
        let mut teller = Teller::new(config, seed);
        teller.prepare();
        for _ in 0..config.steps() {
            if teller.pair.is_over {
                break;
            }
            if teller.pair.steady_ns - teller.last_tick_ns >= SECOND_NS {
                teller.last_tick_ns = teller.pair.steady_ns;
                teller.act(Step::Tick);
                continue;
            }
            let step = choose(
                &mut teller.random,
                &teller.pair,
                config.load,
                teller.was_refused,
            );
            teller.act(step);
        }
        teller.finish()
    }
}

impl Teller {
    fn new(config: Config, seed: u64) -> Self {
        let actions = Actions::default();
        let blank = config.made();
        let options = config.options(seed);
        let mut random = Random::new(mix(seed) ^ config.number());
        let mut device = blank.clone().recorded(&actions);
        let trouble = (config.load == Load::Errors).then(|| trouble(&mut random));
        if let Some(trouble) = &trouble {
            device = device.troubled(trouble);
        }
        let mut pair = Pair::new(device, options.clone(), seed);
        pair.trouble = trouble;
        let story = Story {
            seed,
            options,
            blank,
            actions: Vec::new(),
            ends: Vec::new(),
            promises: Vec::new(),
            files: BTreeMap::new(),
            ring_files: BTreeMap::new(),
            inos: BTreeMap::new(),
            ids: BTreeMap::new(),
            rings: Vec::new(),
            reach: Reach::default(),
        };
        let mut teller = Teller {
            config,
            pair,
            actions,
            story,
            random,
            last_tick_ns: 0,
            times: Vec::new(),
            untold_ns: 0,
            was_refused: false,
        };
        teller.note();
        teller.promise(0, What::All);
        teller
    }

    /// What a load needs to begin with.
    fn prepare(&mut self) {
        if self.config.load == Load::Rings {
            rings(&mut self.pair, &mut self.random, self.config);
            let directories = self.pair.rings.iter().filter(|ring| ring.is_directory);
            self.story.ring_files = directories.map(|ring| (ring.id, Vec::new())).collect();
            self.note();
            self.act(Step::Sync);
        }
        if matches!(self.config.load, Load::Mixed | Load::Full) && self.random.one_in(2) {
            self.act(Step::MakeDirectory(1, b"many".to_vec()));
            let many = self.pair.model.directory(1).unwrap()[&b"many"[..]];
            for number in 0..60 {
                let made = self.pair.model.next;
                self.act(Step::Create(
                    many,
                    format!("file{number}").into_bytes(),
                    Grain::Fine,
                ));
                let value = self.random.bytes(250);
                self.act(Step::Xattr(made, b"user.value".to_vec(), value));
            }
        }
        if matches!(self.config.load, Load::Large | Load::Giga) {
            for name in ["a", "b", "c"] {
                self.act(Step::Create(1, name.into(), Grain::Coarse));
            }
        }
    }

    fn act(&mut self, step: Step) {
        let most_ns = if self.config.load == Load::Extents {
            50_000_000
        } else {
            800_000_000
        };
        let step_ns = 1_000_000 + self.random.below(most_ns) as i64;
        self.pair.steady_ns += step_ns;
        // What passed since the last call, nobody can tell who is told another time.
        self.untold_ns += if matches!(step, Step::Clock(..0)) {
            step_ns
        } else {
            0
        };
        let made = self.pair.model.next;
        if let (Step::Truncate(id, 0), Load::Extents) = (&step, self.config.load) {
            self.count_extents(*id);
        }
        let is_done = self.pair.step(&step);
        if VERBOSE.load(Relaxed) {
            let said: String = format!("{step:?}").chars().take(80).collect();
            let actions = self.actions.borrow().len();
            eprintln!(
                "step {}: {said}, done: {is_done}, {actions} actions so far",
                self.story.ends.len()
            );
        }
        let number = self.story.ends.len();
        if let (Step::Create(parent, ..), true) = (&step, is_done) {
            if let Some(files) = self.story.ring_files.get_mut(parent) {
                files.push((number, made));
            }
        }
        self.was_refused = !is_done && step_may_fill(&step);
        self.count(&step, is_done);
        self.note();
        if !is_done {
            return;
        }
        match step {
            Step::Fsync(1) | Step::Sync | Step::Compact | Step::Remount => {
                self.promise(number, What::All);
            }
            Step::Fsync(id) | Step::WriteSync(id, ..) => {
                self.promise(number, What::One(id));
            }
            Step::Root => self.promise(number, What::Names),
            Step::Tick => {
                // What has waited for so long is durable now.
                let before = self.pair.steady_ns - self.pair.options.dirty_max_ns - self.untold_ns;
                let old = self.times.partition_point(|time| *time <= before);
                if old > 0 {
                    self.promise(old - 1, What::All);
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, step: &Step, is_done: bool) {
        let reach = &mut self.pair.reach;
        match step {
            Step::WriteSync(..) if is_done => reach.sync_writes += 1,
            Step::Exchange(..) if is_done => reach.exchanges += 1,
            _ => {}
        }
        reach.bytes_max = reach.bytes_max.max(self.pair.model.bytes());
        let unnamed = |node: &&super::model::Node| node.nlink == 0;
        if self.pair.model.nodes.values().any(|node| unnamed(&node)) {
            reach.unnamed += 1;
        }
    }

    fn promise(&mut self, step: usize, what: What) {
        let actions = self.actions.borrow().len();
        self.story.promises.push(Promise {
            actions,
            step,
            what,
        });
    }

    /// Notes what the model says now.
    fn note(&mut self) {
        let number = self.story.ends.len();
        let pair = &self.pair;
        // What the file system made and did not come to tell is not known.
        for (id, node) in &pair.model.nodes {
            let Content::File(file) = &node.content else {
                continue;
            };
            let known = self.story.files.entry(*id).or_default();
            if known.last().is_none_or(|(_, last)| last != file) {
                known.push((number, file.clone()));
            }
        }
        let is_known = pair.model.nodes.keys().all(|id| pair.inos.contains_key(id));
        let names = is_known.then(|| names_of(&pair.model, &pair.inos, &pair.rings));
        self.story.ends.push((self.actions.borrow().len(), names));
        self.times.push(pair.steady_ns);
    }

    fn count_extents(&mut self, id: Id) {
        let Some(ino) = self.pair.inos.get(&id).copied() else {
            return;
        };
        let mut count = 0;
        let is_one = |key: &Key| key.kind() == Some(Kind::Extent as u8) && key.ino() == Some(ino);
        let counted = self
            .pair
            .fs()
            .each_key(|key, _| count += u64::from(is_one(key)));
        counted.expect("the catalog can be read");
        let reach = &mut self.pair.reach;
        reach.extents_max = reach.extents_max.max(count);
    }

    fn finish(mut self) -> Story {
        let reach = &mut self.pair.reach;
        reach.stories += 1;
        if let Some(trouble) = &self.pair.trouble {
            let mut trouble = trouble.borrow_mut();
            reach.failed_commands += u64::from(trouble.has_failed);
            trouble.fails = None;
        }
        if !self.pair.is_over {
            self.pair.assert_sound(false);
            self.pair.compare();
            let alive = |id: &&Id| self.pair.model.file(**id).is_some();
            let files: Vec<Id> = self.story.files.keys().filter(alive).copied().collect();
            files.into_iter().for_each(|id| self.count_extents(id));
        }
        self.pair.end();
        let Teller {
            pair,
            actions,
            mut story,
            config,
            ..
        } = self;
        story.reach = pair.reach.clone();
        story.inos = pair.inos.clone();
        story.ids = pair.inos.iter().map(|(id, ino)| (*ino, *id)).collect();
        story.rings = pair.rings.clone();
        drop(pair);
        story.actions = std::mem::take(&mut *actions.borrow_mut());
        let zone_blocks = config.shape().zone_blocks;
        story.reach.see_actions(&story.actions, zone_blocks);
        story
    }
}

/// Makes a ring file and a ring directory.
pub fn rings(pair: &mut Pair, random: &mut Random, config: Config) {
    let zone = u64::from(config.shape().capacity_blocks) * 4096;
    pair.step(&Step::Create(1, b"ring file".to_vec(), Grain::Fine));
    pair.step(&Step::MakeDirectory(1, b"ring directory".to_vec()));
    for (name, is_directory) in [(&b"ring file"[..], false), (b"ring directory", true)] {
        let id = pair.model.directory(1).unwrap()[name];
        let kept = zone * (1 + random.below(4));
        let ino = pair.inos[&id];
        let value = format!("bytes={kept}");
        let set = pair
            .fs()
            .set_xattr(ino, RETAIN_ATTRIBUTE, value.as_bytes(), XattrMode::Any);
        set.unwrap();
        pair.rings.push(Ring {
            id,
            kept,
            is_directory,
        });
    }
}

fn step_may_fill(step: &Step) -> bool {
    matches!(
        step,
        Step::Write(..) | Step::WriteSync(..) | Step::Create(..)
    )
}

/// A command that fails some time.
fn trouble(random: &mut Random) -> Rc<RefCell<Trouble>> {
    let kinds = [
        (Command::Write, 50),
        (Command::Flush, 30),
        (Command::Reset, 3),
        (Command::Finish, 4),
        (Command::Read, 60),
    ];
    let (command, most) = *random.pick(&kinds);
    // The first ones are those of the mount, which is to work.
    let before = 12 + random.below(most);
    let before = match command {
        Command::Reset | Command::Finish => random.below(most),
        _ => before,
    };
    Rc::new(RefCell::new(Trouble {
        fails: Some((command, before)),
        times: random.below(2),
        partial: random.one_in(2),
        ..Trouble::default()
    }))
}
