//! One content: from the hub into the cache.

use std::io::Read;

use crate::cache::{Cache, size_of};
use crate::config::HubConfig;
use crate::content::Content;
use crate::error::HubError;
use crate::http::{Answer, Client};
use crate::lock::Lock;
use crate::part::{CHUNK, Part};
use crate::progress::Event;
use crate::refusal::Asked;
use crate::repository::Repository;
use crate::retry::{Attempts, Signals, Trouble};
use crate::text::{encoded, shown};

/// All that a download needs.
pub(crate) struct Work<'a> {
    pub(crate) config: &'a HubConfig,
    pub(crate) repository: &'a Repository,
    pub(crate) cache: &'a Cache,
    pub(crate) client: &'a Client<'a>,
    pub(crate) signals: &'a Signals,
}

/// A file to load.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Its name in the repository.
    pub(crate) name: String,
    pub(crate) content: Content,
}

/// A file among others, of a commit.
struct Job<'a> {
    work: &'a Work<'a>,
    item: &'a Item,
    number: usize,
    url: String,
}

impl Work<'_> {
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        Attempts::new(self.signals, self.config.patience)
    }

    /// Where a file of a commit is.
    pub(crate) fn url(&self, commit: &str, name: &str) -> String {
        self.client.url(&format!("{}/resolve/{commit}/{}", self.repository.id(), encoded(name)))
    }

    /// Brings a content into the cache, whole and checked. `number` is its place among the files.
    pub(crate) fn load(&self, commit: &str, item: &Item, number: usize) -> Result<(), HubError> {
        let job = Job { work: self, item, number, url: self.url(commit, &item.name) };
        let lock = self.cache.lock(&item.content.id);
        let _lock = Lock::take(&lock, |first| {
            if first {
                self.signals.note(format!("{}: another process loads it; waiting", item.name));
            }
            self.signals.check()
        })?;
        let blob = self.cache.blob(&item.content.id);
        if size_of(&blob) == Some(item.content.bytes) {
            job.tell(item.content.bytes);
            return Ok(());
        }
        let mut part = Part::open(self.cache.part(&item.content.id), &item.content, || self.signals.check())?;
        job.tell(part.have());
        loop {
            job.fill(&mut part)?;
            let Some(found) = part.mismatch() else { return part.finish(&blob) };
            if !part.is_resumed() {
                part.discard()?;
                return Err(job.damaged(found));
            }
            self.signals.note(format!(
                "{}: what an earlier attempt left is damaged ({}); loading it anew",
                item.name,
                part.path().display()
            ));
            part.restart()?;
            job.tell(0);
        }
    }
}

impl Job<'_> {
    fn tell(&self, bytes: u64) {
        self.work.signals.tell(Event::Have { file: self.number, bytes });
    }

    /// Loads until the part is whole.
    fn fill(&self, part: &mut Part<'_>) -> Result<(), HubError> {
        let mut attempts = self.work.attempts();
        let mut most = part.have();
        while !part.is_whole() {
            self.work.signals.check()?;
            let Err(trouble) = self.attempt(part) else { continue };
            // A server that begins anew each time must bring more than before.
            if part.have() > most {
                most = part.have();
                attempts.renew();
            }
            attempts.again(&self.item.name, &self.url, trouble)?;
        }
        Ok(())
    }

    fn attempt(&self, part: &mut Part<'_>) -> Result<(), Trouble> {
        let answer = self.work.client.get(&self.url, part.have(), Asked::File)?;
        if let Some(etag) = answer.etag.as_deref().filter(|etag| self.item.content.contradicts(etag)) {
            let why = format!("it is now {}, and was {}", shown(etag), self.item.content.id);
            return Err(self.changed(why).into());
        }
        self.position(&answer, part)?;
        let mut reader = answer.body.into_reader();
        let mut buffer = vec![0; CHUNK];
        loop {
            self.work.signals.check()?;
            match reader.read(&mut buffer).map_err(|e| self.work.client.broken(&self.url, &e.into()))? {
                0 if part.is_whole() => return Ok(()),
                0 => return Err(Trouble::passing("the connection ended early")),
                n => {
                    if !part.push(&buffer[..n])? {
                        let size = self.item.content.bytes;
                        return Err(self
                            .changed(format!("it is larger than the {size} bytes announced"))
                            .into());
                    }
                    self.tell(part.have());
                }
            }
        }
    }

    /// Makes sure that the bytes to come are those after the ones that are there.
    fn position(&self, answer: &Answer, part: &mut Part<'_>) -> Result<(), Trouble> {
        let size = self.item.content.bytes;
        let announced = match answer.status {
            206 => {
                let range = answer.header("content-range").and_then(parse_range);
                let Some((_, total)) = range.filter(|(start, _)| *start == part.have()) else {
                    part.restart()?;
                    self.tell(0);
                    return Err(Trouble::passing("the server sent another range than was asked for"));
                };
                total
            }
            416 => {
                part.restart()?;
                self.tell(0);
                return Err(Trouble::passing("the server cannot go on where the last attempt ended"));
            }
            _ => {
                if part.have() > 0 {
                    part.restart()?;
                    self.tell(0);
                }
                answer.header("content-length").and_then(|n| n.parse().ok())
            }
        };
        match announced {
            Some(n) if n != size => Err(self.changed(format!("it has {n} bytes, and had {size}")).into()),
            _ => Ok(()),
        }
    }

    fn changed(&self, why: String) -> HubError {
        let repository = self.work.repository.id().to_owned();
        HubError::Changed { repository, file: self.item.name.clone(), why }
    }

    fn damaged(&self, found: String) -> HubError {
        HubError::Hash {
            repository: self.work.repository.id().to_owned(),
            file: self.item.name.clone(),
            kind: self.item.content.kind.name(),
            expected: self.item.content.id.clone(),
            found,
        }
    }
}

/// `bytes 5-9/10` to `(5, Some(10))`.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_range("bytes 0-0/*"), Some((0, None)));
        for bad in ["", "bytes", "5-9/10", "bytes x-9/10", "bytes 5", "bytes */10"] {
            assert_eq!(parse_range(bad), None, "{bad:?}");
        }
    }
}
