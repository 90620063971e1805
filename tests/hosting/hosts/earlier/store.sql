BEGIN TRANSACTION;
CREATE TABLE buckets (name TEXT PRIMARY KEY, created INTEGER, account TEXT, region TEXT);
INSERT INTO "buckets" VALUES('models',1795421527770,'000000000000','us-east-1');
CREATE TABLE objects (
    bucket TEXT, key BLOB, blob TEXT, size INTEGER, etag TEXT, modified INTEGER, headers BLOB, checksum BLOB,
    PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
INSERT INTO "objects" VALUES('models',CAST('a/key' AS BLOB),'918938c5c3316e3e22bc55ce952d1361',10,'e48542bf0280a1c4032cbfba71f00e81',1795421527777,CAST('{"content-type":"binary/octet-stream"}' AS BLOB),CAST('["CRC32","ttflTQ==","FULL_OBJECT"]' AS BLOB));
CREATE TABLE parts (
    upload TEXT, number INTEGER, blob TEXT, size INTEGER, etag TEXT, modified INTEGER, checksum BLOB,
    PRIMARY KEY (upload, number)
) WITHOUT ROWID;
CREATE TABLE uploads (
    id TEXT PRIMARY KEY, bucket TEXT, key BLOB, begun INTEGER, headers BLOB, algorithm TEXT, checksum_kind TEXT
);
COMMIT;
