//! Persistent objects and last revision, in a redb database file.

use std::{
    collections::HashMap,
    fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use redb::{Database, DatabaseError, ReadableTable, StorageError, TableDefinition, TableError};
use serde_json::Value;
use thiserror::Error;

use super::{Change, Key};
use crate::{Object, Resource, encoded::SharedTexts, json::str_at, object::Version};

/// `resource.group/key` → time of the write (microseconds since 1970) and the object's JSON text.
const OBJECTS: TableDefinition<'_, &str, (i64, &[u8])> = TableDefinition::new("objects");
/// Metadata of the file: format and last revision.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const REVISION: &str = "revision";
const FORMAT: &str = "format";
/// Format written by this version. Files of other formats are rejected.
const THIS_FORMAT: u64 = 1;

/// Size of redb's cache in bytes. It is small because all objects are in memory.
const CACHE: usize = 8 << 20;

/// Unusable data directory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The directory or the file cannot be created, opened or read.
    #[error("cannot use {path}: {why}")]
    Unusable {
        /// The directory or the file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// Another process uses the file.
    #[error("{path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The content of the file is invalid.
    #[error("{path} is damaged: {why}; move it away to start with an empty cluster")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
}

/// Last revision and all objects.
pub(super) type Contents = (u64, Vec<Arc<Version>>);

type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// Database file. After a failed write it is reopened for the next write.
pub(crate) struct Disk {
    path: PathBuf,
    opener: Opener,
    database: Option<Database>,
    /// Keys of failed writes. They may or may not have reached the file, so the next write repairs them.
    uncertain: Vec<(Resource, Key)>,
}

impl Disk {
    /// Opens the file in `directory`, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, or the file is in use or damaged.
    pub(crate) fn open(directory: &Path) -> Result<Self, DataError> {
        let unusable =
            |error: io::Error| DataError::Unusable { path: directory.to_owned(), why: error.to_string() };
        fs::create_dir_all(directory).map_err(unusable)?;
        let path = directory.join("objects.redb");
        let file = path.clone();
        let disk =
            Self::with(path, Box::new(move || Database::builder().set_cache_size(CACHE).create(&file)))?;
        // A new file is durable only with its directory entry.
        fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(unusable)?;
        Ok(disk)
    }

    pub(super) fn with(path: PathBuf, opener: Opener) -> Result<Self, DataError> {
        let mut disk = Self { path, opener, database: None, uncertain: Vec::new() };
        // redb reports most damage as an error but panics on some.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = (disk.opener)()?;
            let intact = database.check_integrity()?;
            Ok((database, intact))
        }));
        match opened {
            Ok(Ok((database, true))) => disk.database = Some(database),
            Ok(Ok((_, false))) => return Err(disk.damaged("checksum mismatch")),
            Ok(Err(error)) => return Err(disk.open_error(error)),
            Err(_) => return Err(disk.damaged("not a database")),
        }
        Ok(disk)
    }

    fn open_error(&self, error: DatabaseError) -> DataError {
        let path = self.path.clone();
        match error {
            DatabaseError::DatabaseAlreadyOpen => DataError::InUse { path },
            DatabaseError::Storage(StorageError::Corrupted(why)) => DataError::Damaged { path, why },
            // Not a database, or a truncated one.
            DatabaseError::Storage(StorageError::Io(error))
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                DataError::Damaged { path, why: error.to_string() }
            }
            DatabaseError::RepairAborted | DatabaseError::UpgradeRequired(_) => {
                DataError::Damaged { path, why: error.to_string() }
            }
            error => DataError::Unusable { path, why: error.to_string() },
        }
    }

    fn damaged(&self, why: impl fmt::Display) -> DataError {
        DataError::Damaged { path: self.path.clone(), why: why.to_string() }
    }

    /// Reads the last revision and all objects.
    ///
    /// # Errors
    ///
    /// The file cannot be read or contains invalid data.
    pub(super) fn load(&mut self, texts: &SharedTexts) -> Result<Contents, DataError> {
        match catch_unwind(AssertUnwindSafe(|| self.read(texts))) {
            Ok(Ok(read)) => read.map_err(|why| self.damaged(why)),
            Ok(Err(error)) => Err(self.damaged(error)),
            Err(_) => Err(self.damaged("not a database")),
        }
    }

    /// Reads the file. The inner error describes invalid data.
    fn read(&self, texts: &SharedTexts) -> Result<Result<Contents, String>, redb::Error> {
        let Some(database) = &self.database else { return Ok(Ok((0, Vec::new()))) };
        let transaction = redb::ReadableDatabase::begin_read(database)?;
        let numbers = match transaction.open_table(NUMBERS) {
            Ok(numbers) => numbers,
            // A new file.
            Err(TableError::TableDoesNotExist(_)) => return Ok(Ok((0, Vec::new()))),
            Err(error) => return Err(error.into()),
        };
        let number = |name| numbers.get(name).map(|found| found.map_or(0, |found| found.value()));
        let (format, revision) = (number(FORMAT)?, number(REVISION)?);
        if format != THIS_FORMAT {
            return Ok(Err(format!("unsupported format {format}, expected {THIS_FORMAT}")));
        }
        let mut objects = Vec::new();
        let mut custom = Vec::new();
        for row in transaction.open_table(OBJECTS)?.iter()? {
            let (name, value) = row?;
            let (written, text) = value.value();
            match resource_of(name.value())
                .map(|resource| decode(resource, name.value(), written, text, texts))
            {
                Some(Some(read)) => objects.push(read),
                // Objects of custom resources may precede their definitions.
                None => custom.push((name.value().to_owned(), written, text.to_vec())),
                Some(None) => return Ok(Err(format!("invalid object {:?}", name.value()))),
            }
        }
        let defined = defined_resources(&objects);
        for (name, written, text) in custom {
            let resource = name.split_once('/').and_then(|(qualified, _)| defined.get(qualified));
            match resource.and_then(|resource| decode(*resource, &name, written, &text, texts)) {
                Some(read) => objects.push(read),
                None => return Ok(Err(format!("invalid object {name:?}"))),
            }
        }
        Ok(Ok((revision, objects)))
    }

    /// Makes `changes` durable, all or none. `current` returns the published version of an object.
    ///
    /// # Errors
    ///
    /// The file cannot be written. What was written partially is repaired by the next successful commit.
    pub(super) fn commit(
        &mut self,
        changes: &[Change],
        present: impl Fn(Resource, &Key) -> Option<Arc<Version>>,
    ) -> Result<(), String> {
        let written = self.write(changes, present);
        if written.is_ok() {
            self.uncertain.clear();
        } else {
            // After an error redb rejects all operations until the file is reopened.
            self.database = None;
            self.uncertain
                .extend(changes.iter().map(|change| (change.resource(), Arc::clone(change.object.key()))));
        }
        written.map_err(|error| format!("failed to write {}: {error}", self.path.display()))
    }

    fn write(
        &mut self,
        changes: &[Change],
        present: impl Fn(Resource, &Key) -> Option<Arc<Version>>,
    ) -> Result<(), redb::Error> {
        let database = match &mut self.database {
            Some(database) => database,
            closed => closed.insert((self.opener)()?),
        };
        // Transactions are durable by default: commit returns after fsync.
        let transaction = database.begin_write()?;
        {
            let mut numbers = transaction.open_table(NUMBERS)?;
            numbers.insert(FORMAT, THIS_FORMAT)?;
            numbers.insert(REVISION, changes.last().map_or(0, Change::revision))?;
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut put =
                |resource: Resource, key: &Key, version: Option<&Version>| -> Result<(), redb::Error> {
                    let name = format!("{}/{key}", resource.qualified());
                    match version {
                        Some(version) => {
                            let text = version.text();
                            let value = (version.written().as_microsecond(), text.as_slice());
                            objects.insert(name.as_str(), value)?;
                        }
                        None => {
                            objects.remove(name.as_str())?;
                        }
                    }
                    Ok(())
                };
            for (resource, key) in &self.uncertain {
                put(*resource, key, present(*resource, key).as_deref())?;
            }
            for change in changes {
                put(change.resource(), change.object.key(), (!change.removed).then_some(&*change.object))?;
            }
        }
        Ok(transaction.commit()?)
    }
}

/// Returns the built-in resource of a row.
fn resource_of(name: &str) -> Option<Resource> {
    let (qualified, _) = name.split_once('/')?;
    let (plural, group) = qualified.split_once('.').unwrap_or((qualified, ""));
    Resource::find(group, plural)
}

/// Returns the custom resources that are defined in `objects`, by qualified name.
fn defined_resources(objects: &[Arc<Version>]) -> HashMap<String, Resource> {
    let definitions =
        objects.iter().filter(|version| version.resource() == Resource::CUSTOM_RESOURCE_DEFINITIONS);
    definitions
        .filter_map(|version| {
            let definition = Object::new(Arc::clone(version));
            Some((definition.name().to_owned(), crate::custom::resource_of(&definition)?))
        })
        .collect()
}

fn decode(
    resource: Resource,
    name: &str,
    written: i64,
    text: &[u8],
    texts: &SharedTexts,
) -> Option<Arc<Version>> {
    let (_, key) = name.split_once('/')?;
    let value: Value = serde_json::from_slice(text).ok()?;
    let metadata = |field| str_at(&value, &["metadata", field]);
    if *super::key(metadata("namespace"), metadata("name")) != *key {
        return None;
    }
    let revision = metadata("resourceVersion").parse().ok()?;
    let written = Timestamp::from_microsecond(written).ok()?;
    Some(Arc::new(Version::new(resource, &key.into(), &value, None, written, texts).with_revision(revision)))
}
