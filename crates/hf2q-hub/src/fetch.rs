//! A repository: from its name to a folder.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::cache::{self, Cache, size_of};
use crate::config::HubConfig;
use crate::content::Content;
use crate::download::{Item, Work};
use crate::error::HubError;
use crate::http::Client;
use crate::index;
use crate::listing::{self, Entry, Listing};
use crate::progress::{Event, Meter, Progress};
use crate::refusal::Asked;
use crate::repository::Repository;
use crate::retry::{Attempts, Signals};
use crate::select::{Weights, select};
use crate::space;
use crate::text::encoded;

/// How often the caller's [`Progress`] is called.
const TICK: Duration = Duration::from_millis(100);

/// A hub and its cache.
#[derive(Clone, Debug)]
pub struct Hub {
    config: HubConfig,
}

/// A checkpoint in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// Holds links to the files of the commit that a conversion reads.
    pub folder: PathBuf,
    /// 40 hexadecimal digits.
    pub commit: String,
    /// Bytes of files that were not in the cache before, an index of weights aside.
    pub loaded: u64,
}

impl Hub {
    /// Opens no connection yet.
    pub fn new(config: HubConfig) -> Self {
        Self { config }
    }

    pub(crate) fn config(&self) -> &HubConfig {
        &self.config
    }

    /// The folder of a repository: from the cache, as far as it is there, else loaded.
    ///
    /// The hub is asked each time which files there are, also for a whole commit hash, of which another program may
    /// have loaded a part. If it is away or refuses and the cache has the revision, that stands in, with a note; so it
    /// does without being asked where the configuration says offline.
    pub fn fetch(&self, repository: &Repository, progress: &mut dyn Progress) -> Result<Snapshot, HubError> {
        let cache = Cache::new(&self.config.cache, repository);
        if self.config.offline {
            return offline(&cache, repository, progress);
        }
        let (events, receiver) = channel();
        let signals = Signals::new(events);
        let client = Client::new(&self.config, repository, &signals)?;
        let (cache, signals, client) = (&cache, &signals, &client);
        let work = Work { config: &self.config, repository, cache, client, signals };
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let result = work.run();
                signals.tell(Event::Done);
                result
            });
            listen(&work, &receiver, &worker, progress);
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Passes on what the worker reports until it is done, and stops it if the caller says so.
fn listen<T>(
    work: &Work<'_>,
    receiver: &Receiver<Event>,
    worker: &ScopedJoinHandle<'_, T>,
    progress: &mut dyn Progress,
) {
    let mut meter = Meter::default();
    let mut updated = Instant::now();
    let mut ended = false;
    loop {
        let event = receiver.recv_timeout(TICK);
        let done = match event {
            Ok(Event::Done) => true,
            // A worker that panicked says nothing any more.
            Err(RecvTimeoutError::Timeout) => worker.is_finished(),
            Err(RecvTimeoutError::Disconnected) => true,
            Ok(Event::Note(text)) => {
                progress.note(&text);
                false
            }
            Ok(Event::Files(files)) => {
                meter.files(files);
                false
            }
            Ok(Event::Have { file, bytes }) => {
                meter.have(file, bytes);
                false
            }
        };
        if done || updated.elapsed() >= TICK {
            updated = Instant::now();
            if !progress.update(&meter.status(updated)) {
                work.signals.stop();
            }
        }
        if done {
            return;
        }
        // Either the caller, or a file that is not to be had.
        if work.signals.stopped() && !ended {
            work.client.shutdown();
            ended = true;
        }
    }
}

/// The commit of a revision if the cache has all a conversion needs of it, else what is missing.
fn cached(cache: &Cache, repository: &Repository) -> Result<Result<String, String>, HubError> {
    let commit = cache.commit_of(repository).filter(|c| cache.snapshot(c).is_dir());
    let Some(commit) = commit else {
        return Ok(Err(format!("revision {} was never loaded", repository.revision())));
    };
    let missing = cache::missing(&cache.snapshot(&commit))?;
    Ok(if missing.is_empty() { Ok(commit) } else { Err(format!("{} is missing", missing.join(", "))) })
}

/// What may be missing of a snapshot that was not compared with the hub's listing.
fn doubts(cache: &Cache, commit: &str) -> Option<String> {
    let names = cache.unsure(commit);
    (!names.is_empty()).then(|| {
        format!("The cache has no {} of commit {commit}; the repository may have it", names.join(", "))
    })
}

fn offline(
    cache: &Cache,
    repository: &Repository,
    progress: &mut dyn Progress,
) -> Result<Snapshot, HubError> {
    let missing = |why| HubError::NotCached {
        repository: repository.id().to_owned(),
        cache: cache.root().to_owned(),
        why,
    };
    let commit = cached(cache, repository)?.map_err(missing)?;
    if let Some(doubts) = doubts(cache, &commit) {
        progress.note(&doubts);
    }
    Ok(Snapshot { folder: cache.snapshot(&commit), commit, loaded: 0 })
}

impl Work<'_> {
    fn run(&self) -> Result<Snapshot, HubError> {
        // A damaged snapshot is loaded again.
        let cached = cached(self.cache, self.repository).ok().and_then(Result::ok);
        let standing = |commit: String| Snapshot { folder: self.cache.snapshot(&commit), commit, loaded: 0 };
        match (self.listing(cached.is_some()), cached) {
            (Ok(listing), _) => self.bring(&listing),
            (Err(error), Some(commit)) if error.leaves_the_cache() => {
                self.signals.note(format!("{error}\nUsing commit {commit} from the cache"));
                if let Some(doubts) = doubts(self.cache, &commit) {
                    self.signals.note(doubts);
                }
                Ok(standing(commit))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Asks once only if the cache can stand in.
    fn listing(&self, once: bool) -> Result<Listing, HubError> {
        let (id, revision) = (self.repository.id(), encoded(self.repository.revision()));
        let url = self.client.url(&format!("api/models/{id}/revision/{revision}?blobs=true"));
        let mut patience = self.config.patience;
        if once {
            patience.attempts = 1;
        }
        let bytes = Attempts::new(self.signals, patience)
            .run(self.repository.id(), &url, || self.client.read(&url, listing::LIMIT, Asked::Listing))?;
        Listing::parse(&bytes, &url, self.repository)
    }

    /// Loads what is missing of a commit, then links it, then notes where the revision stands.
    fn bring(&self, listing: &Listing) -> Result<Snapshot, HubError> {
        let commit = &*listing.commit;
        let folder = self.cache.snapshot(commit);
        let items = self.items(listing)?;
        let absent = |item: &&Item| size_of(&folder.join(&item.name)) != Some(item.content.bytes);
        let absent: Vec<Item> = items.iter().filter(absent).cloned().collect();
        let mut loaded = 0;
        if absent.is_empty() {
            // A cache that cannot be written to is good enough here.
            let _ = self.cache.note_commit(self.repository, commit);
        } else {
            loaded = self.load_all(commit, &absent)?;
            for item in &absent {
                self.cache.link(commit, &item.name, &item.content.id)?;
            }
            self.cache.note_commit(self.repository, commit)?;
        }
        self.cache.note_absent(commit, |name| listing.files.iter().any(|f| f.name == name));
        Ok(Snapshot { folder, commit: commit.to_owned(), loaded })
    }

    /// The files to have: small ones first, so that a refusal or an odd checkpoint is found early.
    fn items(&self, listing: &Listing) -> Result<Vec<Item>, HubError> {
        let commit = &*listing.commit;
        let selection = select(listing, self.repository)?;
        let describe = |entry: &Entry| self.describe(commit, entry);
        let mut items = selection.small.iter().map(describe).collect::<Result<Vec<Item>, _>>()?;
        items.sort_by_key(|item| item.content.bytes);
        match selection.weights {
            Weights::Single(entry) => items.push(describe(&entry)?),
            Weights::Index(entry) => {
                let index = describe(&entry)?;
                let shards = self.shards(listing, &index)?;
                items.push(index);
                for entry in &shards {
                    items.push(describe(entry)?);
                }
            }
        }
        Ok(items)
    }

    /// Loads the index if need be, and finds the files that it names.
    fn shards(&self, listing: &Listing, item: &Item) -> Result<Vec<Entry>, HubError> {
        let linked = self.cache.snapshot(&listing.commit).join(&item.name);
        let path = if size_of(&linked) == Some(item.content.bytes) {
            linked
        } else {
            if item.content.bytes > index::LIMIT {
                return Err(HubError::TooLarge { of: item.name.clone(), limit: index::LIMIT });
            }
            self.load_all(&listing.commit, std::slice::from_ref(item))?;
            self.cache.blob(&item.content.id)
        };
        let names = index::shards(&path, self.repository.id())?;
        let find = |name: &String| listing.files.iter().find(|f| f.name == *name);
        let missing: Vec<String> = names.iter().filter(|n| find(n).is_none()).cloned().collect();
        if !missing.is_empty() {
            let (repository, index) = (self.repository.id().to_owned(), item.name.clone());
            return Err(HubError::MissingShards { repository, index, files: missing });
        }
        Ok(names.iter().filter_map(find).cloned().collect())
    }

    /// What a file is; asks for it where the listing does not say.
    fn describe(&self, commit: &str, entry: &Entry) -> Result<Item, HubError> {
        let name = entry.name.clone();
        if let Some(content) = entry.content.clone() {
            return Ok(Item { name, content });
        }
        let url = self.url(commit, &name);
        let answer = self.attempts().run(&name, &url, || self.client.look(&url))?;
        let size = answer.header("x-linked-size").or_else(|| {
            // The length of a redirect is not that of the file.
            answer.header("content-length").filter(|_| (200..300).contains(&answer.status))
        });
        let size = size.and_then(|n| n.parse().ok());
        let content = answer.etag.as_deref().zip(size).and_then(|(etag, size)| Content::tagged(etag, size));
        let why = "the hub says neither in its listing nor here what size and hash it has".to_owned();
        Ok(Item { name, content: content.ok_or(HubError::Malformed { of: url, why })? })
    }

    /// Brings contents into the cache; the bytes that were not there.
    fn load_all(&self, commit: &str, items: &[Item]) -> Result<u64, HubError> {
        self.cache.prepare()?;
        let mut unique: Vec<&Item> = Vec::new();
        for item in items {
            let there = size_of(&self.cache.blob(&item.content.id)) == Some(item.content.bytes);
            if !there && unique.iter().all(|other| other.content.id != item.content.id) {
                unique.push(item);
            }
        }
        let rest = |item: &&Item| {
            let part = size_of(&self.cache.part(&item.content.id)).unwrap_or(0);
            item.content.bytes.saturating_sub(part)
        };
        let needed = unique.iter().map(rest).fold(0, u64::saturating_add);
        space::check(self.cache.root(), needed)?;
        self.signals.tell(Event::Files(unique.iter().map(|i| (i.name.clone(), i.content.bytes)).collect()));
        self.load_in_parallel(commit, &unique)?;
        Ok(unique.iter().map(|item| item.content.bytes).fold(0, u64::saturating_add))
    }

    /// The first failure stops the others.
    fn load_in_parallel(&self, commit: &str, items: &[&Item]) -> Result<(), HubError> {
        let next = AtomicUsize::new(0);
        let failure: Mutex<Option<HubError>> = Mutex::new(None);
        let worker = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(number) else { return };
                let Err(error) = self.load(commit, item, number) else { continue };
                self.signals.stop();
                let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                // That others were stopped is not why.
                if first.as_ref().is_none_or(|e| matches!(e, HubError::Cancelled)) {
                    *first = Some(error);
                }
                return;
            }
        };
        thread::scope(|scope| {
            for _ in 0..self.config.parallel.clamp(1, items.len().max(1)) {
                scope.spawn(worker);
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
