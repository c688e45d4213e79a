-- A store as version 7 of its schema wrote it.
BEGIN TRANSACTION;
CREATE TABLE compactions (
    conversation text primary key references conversations(id) on delete cascade,
    upto integer not null, summary text not null, ids blob not null
);
CREATE TABLE conversations (
    id text primary key, title text not null, model text not null, vocabulary text,
    created real not null, updated real not null
, parent text references conversations(id), shared integer not null default 0, revision integer not null default 0, hidden integer not null default 0, source text not null default 'local', metadata text);
INSERT INTO "conversations" VALUES('conv_first','Multiply','tiny','o200k_harmony',1769000000.0,1769000000.0,NULL,0,1,0,'local',NULL);
CREATE TABLE "entries" (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, message integer not null references messages(number),
    reasoning integer not null, role text, recipient text, primary key (conversation, position)
) without rowid;
INSERT INTO "entries" VALUES('conv_first',0,1,0,'user',NULL);
INSERT INTO "entries" VALUES('conv_first',1,2,0,'result','functions.f');
INSERT INTO "entries" VALUES('conv_first',2,3,0,'assistant',NULL);
CREATE TABLE journal (
    number integer primary key, turn text not null references turns(id) on delete cascade,
    note text not null
);
CREATE TABLE messages (number integer primary key, digest blob not null unique, ids blob not null);
INSERT INTO "messages" VALUES(1,X'A17AE1F1371FFE23FF89CFE7E477DB26564C2EF545E36E4B5AC8FC09A69B0B5B',X'460D030094050000480D030001000000470D0300');
INSERT INTO "messages" VALUES(2,X'496978C615F05DB8F131BE9564ACE5269D04F2FD8C6AC1592584DA8539E6D24C',X'460D030002000000480D030007000000');
INSERT INTO "messages" VALUES(3,X'E34E1B7A3FF561B216EE462CC4394FE8686F22CEA900B2D8E2FC2E0C6B0DF97F',X'460D0300D5A60200480D030003000000470D0300');
CREATE TABLE pending_entries (
    turn text not null references turns(id) on delete cascade, position integer not null,
    message integer not null references messages(number), role text,
    primary key (turn, position)
) without rowid;
CREATE TABLE shortened (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, ids blob not null,
    primary key (conversation, position)
) without rowid;
INSERT INTO "shortened" VALUES('conv_first',1,X'460D030002000000');
CREATE TABLE turn_items (
    item text primary key, turn text not null references turns(id) on delete cascade
) without rowid;
CREATE TABLE turns (
    id text primary key, conversation text not null references conversations(id) on delete cascade,
    prompt text not null, status text not null, response text not null,
    pid integer not null, created real not null
, start integer, events blob, upto integer, revision integer, served text);
INSERT INTO "turns" VALUES('resp_1','conv_first','Multiply','completed','{"id":"resp_1","object":"response","created_at":0,"completed_at":null,"status":"completed","model":"tiny","output":[],"error":null,"incomplete_details":null,"instructions":null,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"tools":[],"tool_choice":"auto","parallel_tool_calls":true,"max_output_tokens":null,"max_tool_calls":null,"text":{"format":{"type":"text"}},"truncation":"disabled","temperature":1.0,"top_p":1.0,"presence_penalty":0.0,"frequency_penalty":0.0,"top_logprobs":0,"store":true,"background":false,"service_tier":"default","metadata":{},"usage":null,"safety_identifier":null,"prompt_cache_key":null}',1,1769000000.0,0,NULL,3,1,NULL);
CREATE INDEX turns_of on turns(conversation, created);
CREATE INDEX branches_of on conversations(parent);
CREATE INDEX journal_of on journal(turn);
CREATE INDEX turns_by_age on turns(created);
CREATE INDEX items_of_turn on turn_items(turn)
;
CREATE INDEX entries_with on entries(message);
CREATE INDEX pending_with on pending_entries(message);
CREATE TABLE entry_marks (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, dropped integer not null, pinned integer not null,
    primary key (conversation, position)
) without rowid;
INSERT INTO "entry_marks" VALUES('conv_first',0,0,1);
COMMIT;
PRAGMA user_version=7;
