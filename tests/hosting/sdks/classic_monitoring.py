"""What users of the SageMaker Python SDK write: an endpoint whose data are captured and monitored."""

import json
import subprocess
import sys
import time
from pathlib import Path

import sagemaker
from sagemaker import get_execution_role
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.model_monitor import CronExpressionGenerator, DataCaptureConfig, DefaultModelMonitor
from sagemaker.predictor import Predictor
from sagemaker.s3 import S3Downloader
from sagemaker.serializers import JSONSerializer

from halimede.sagemaker_sdk import use_host

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()
session = sagemaker.Session()
role = get_execution_role()
bucket = session.default_bucket()
NAME = "classic-monitoring"
PATIENCE_S = 200

data = session.upload_data(str(archive), key_prefix=NAME)
image = sagemaker.image_uris.retrieve(
    "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
)
model = Model(
    image_uri=image,
    model_data=data,
    role=role,
    predictor_cls=Predictor,
    sagemaker_session=session,
    name=NAME,
    env={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
)
captured = f"s3://{bucket}/{NAME}/captured"
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name=NAME,
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
    data_capture_config=DataCaptureConfig(
        enable_capture=True,
        sampling_percentage=100,
        destination_s3_uri=captured,
        json_content_types=["application/json"],
    ),
)
for _ in range(5):
    predictor.predict(json.loads(picture.read_text()))
deadline = time.monotonic() + PATIENCE_S
while not S3Downloader.list(f"{captured}/{NAME}", sagemaker_session=session):
    assert time.monotonic() < deadline
    time.sleep(1)  # sleeps: as users' scripts do

baseline = f"s3://{bucket}/{NAME}/baseline"
command = [sys.executable, "-m", "halimede", "baseline", "--endpoint", NAME, "--output", baseline]
subprocess.run(command, check=True)

monitor = DefaultModelMonitor(
    role=role,
    instance_count=1,
    instance_type="ml.m5.xlarge",
    volume_size_in_gb=20,
    max_runtime_in_seconds=600,
    sagemaker_session=session,
)
said["before"] = monitor.list_executions() if monitor.monitoring_schedule_name else []
monitor.create_monitoring_schedule(
    monitor_schedule_name=NAME,
    endpoint_input=NAME,
    output_s3_uri=f"s3://{bucket}/{NAME}/reports",
    statistics=f"{baseline}/statistics.json",
    constraints=f"{baseline}/constraints.json",
    schedule_cron_expression=CronExpressionGenerator.now(),
    data_analysis_start_time="-PT1H",
    data_analysis_end_time="-PT0H",
    enable_cloudwatch_metrics=True,
)
described = monitor.describe_schedule()
said |= {"status": described["MonitoringScheduleStatus"], "type": described["MonitoringType"]}
while True:
    executions = monitor.list_executions()
    if executions and executions[-1].describe()["ProcessingJobStatus"] not in ("InProgress", "Stopping"):
        break
    assert time.monotonic() < deadline
    time.sleep(1)  # sleeps: as users' scripts do
job = executions[-1].describe()
said |= {"job": job["ProcessingJobStatus"], "message": job.get("ExitMessage", job.get("FailureReason"))}
statistics = monitor.latest_monitoring_statistics().body_dict
said["columns"] = [each["name"] for each in statistics["features"]]
said["violations"] = monitor.latest_monitoring_constraint_violations().body_dict["violations"]

again = DefaultModelMonitor.attach(NAME, sagemaker_session=session)
said["attached"] = again.job_definition_name == monitor.job_definition_name
again.update_monitoring_schedule(schedule_cron_expression=CronExpressionGenerator.hourly())
said["hourly"] = again.describe_schedule()["MonitoringScheduleConfig"]["ScheduleConfig"]["ScheduleExpression"]
again.stop_monitoring_schedule()
said["stopped"] = again.describe_schedule()["MonitoringScheduleStatus"]
again.start_monitoring_schedule()
said["started"] = again.describe_schedule()["MonitoringScheduleStatus"]
again.delete_monitoring_schedule()
said["left"] = len(session.sagemaker_client.list_monitoring_schedules()["MonitoringScheduleSummaries"])
predictor.delete_endpoint()
model.delete_model()
result.write_text(json.dumps(said))
