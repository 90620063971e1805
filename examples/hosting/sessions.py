"""Stateful sessions: `python -m examples.hosting.sessions`.

Two instances of a container that knows what it was told; the requests of a session all go to the same one. Where
SageMaker is, AWS_ENDPOINT_URL says.
"""

import time
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

from examples.hosting.environment import check_environment

IMAGE = str(Path(__file__).parent.resolve() / "images" / "running_mean.py")
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
SESSIONS = 6

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")


def main() -> None:
    name = time.strftime("running-mean-%Y-%m-%d-%H-%M-%S")
    sm_client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": IMAGE})
    sm_client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 2,
                "ModelName": name,
                "VariantName": "AllTraffic",
            }
        ],
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    response = sm_client.describe_endpoint(EndpointName=name)
    while (status := response["EndpointStatus"]) == "Creating":
        time.sleep(10)
        response = sm_client.describe_endpoint(EndpointName=name)
    if status != "InService":
        raise SystemExit(f"{name}: {status}: {response.get('FailureReason')}")
    print(f"{name}: {status}")

    sessions = []
    for _ in range(SESSIONS):
        response = runtime_sm_client.invoke_endpoint(EndpointName=name, SessionId="NEW_SESSION", Body="")
        session, _, expires = response["NewSessionId"].partition("; ")
        sessions.append(session)
    print(f"{SESSIONS} sessions, the last one until {expires.removeprefix('Expires=')}")

    means: list[list[float]] = [[] for _ in sessions]
    for number in (1, 2, 6):
        for at, session in enumerate(sessions):
            response = runtime_sm_client.invoke_endpoint(
                EndpointName=name, SessionId=session, Body=str(number * (at + 1))
            )
            means[at].append(float(response["Body"].read()))
    for at, answers in enumerate(means):
        print(f"session {at + 1}: {', '.join(f'{answer:g}' for answer in answers)}")
        if answers != [(at + 1) * mean for mean in (1, 1.5, 3)]:
            raise SystemExit("wrong answer: a session was told other numbers")

    response = runtime_sm_client.invoke_endpoint(EndpointName=name, SessionId=sessions[0], Body="close")
    if response["ClosedSessionId"] != sessions[0]:
        raise SystemExit("wrong session: another one was closed")
    print(response["Body"].read().decode())
    try:
        runtime_sm_client.invoke_endpoint(EndpointName=name, SessionId=sessions[0], Body="1")
    except ClientError as error:
        print(f"{error.response['Error']['Code']}: {error.response['Error']['Message']}")
    else:
        raise SystemExit("wrong answer: the session is closed")

    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    print("deleted")


if __name__ == "__main__":
    main()
