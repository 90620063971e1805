BEGIN TRANSACTION;
CREATE TABLE minutes (
    namespace TEXT, name TEXT, dimensions TEXT, minute INTEGER, unit TEXT,
    count REAL, total REAL, minimum REAL, maximum REAL, sketch TEXT,
    PRIMARY KEY (namespace, name, dimensions, minute));
INSERT INTO "minutes" VALUES('mine','x','[]',MINUTE,'None',1.0,7.0,7.0,7.0,'{"98": 1.0}');
INSERT INTO "minutes" VALUES('AWS/SageMaker','Invocations','[["EndpointName", "e"], ["VariantName", "A"]]',MINUTE,'None',3.0,3.0,1.0,1.0,'{"0": 3}');
INSERT INTO "minutes" VALUES('AWS/SageMaker','InvocationsPerInstance','[["EndpointName", "e"], ["VariantName", "A"]]',MINUTE,'None',3.0,3.0,1.0,1.0,'{"0": 3}');
INSERT INTO "minutes" VALUES('AWS/SageMaker','Invocation4XXErrors','[["EndpointName", "e"], ["VariantName", "A"]]',MINUTE,'None',3.0,0.0,0.0,0.0,'{"2097152": 3}');
INSERT INTO "minutes" VALUES('AWS/SageMaker','Invocation5XXErrors','[["EndpointName", "e"], ["VariantName", "A"]]',MINUTE,'None',3.0,0.0,0.0,0.0,'{"2097152": 3}');
INSERT INTO "minutes" VALUES('AWS/SageMaker','InvocationModelErrors','[["EndpointName", "e"], ["VariantName", "A"]]',MINUTE,'None',3.0,0.0,0.0,0.0,'{"2097152": 3}');
INSERT INTO "minutes" VALUES('AWS/SageMaker','ModelLatency','[["EndpointName", "e"], ["VariantName", "A"]]',MINUTE,'Microseconds',3.0,4.99623999999999966791e+02,121.305,195.511,'{"266": 1.0, "263": 1.0, "242": 1.0}');
INSERT INTO "minutes" VALUES('AWS/SageMaker','OverheadLatency','[["EndpointName", "e"], ["VariantName", "A"]]',MINUTE,'Microseconds',3.0,8.12311999999999898112e+02,185.136,389.251,'{"301": 1.0, "276": 1.0, "264": 1.0}');
COMMIT;
